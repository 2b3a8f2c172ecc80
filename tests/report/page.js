/* Filters over the requirements. Without scripts the page is whole, only longer. */
(function () {
  "use strict";
  var place = document.getElementById("filter");
  var rows = Array.prototype.slice.call(document.querySelectorAll(".matrix tbody.req"));
  if (!place || rows.length === 0) return;

  function make(element, properties) {
    var made = document.createElement(element);
    for (var name in properties) made[name] = properties[name];
    place.appendChild(made);
    return made;
  }

  var text = make("input", { type: "search", placeholder: "id, words or a test's name" });
  text.setAttribute("aria-label", "Show requirements that contain");
  var kind = make("select", {});
  kind.setAttribute("aria-label", "Show requirements that are");
  [["", "all requirements"], ["bad", "violated or unresolved"],
   ["untested", "not tested by any run"], ["reworded", "held in another wording only"], ["held", "held"]].forEach(function (choice) {
    var option = document.createElement("option");
    option.value = choice[0];
    option.textContent = choice[1];
    kind.appendChild(option);
  });
  var tests = make("button", { type: "button", textContent: "show all tests" });
  var count = make("small", {});
  count.setAttribute("aria-live", "polite");
  var contents = rows.map(function (row) { return row.textContent.toLowerCase(); });

  function apply() {
    var wanted = text.value.toLowerCase(), shown = 0;
    rows.forEach(function (row, i) {
      var fits = (kind.value === "" || row.dataset.kind === kind.value) &&
        contents[i].indexOf(wanted) >= 0;
      row.hidden = !fits;
      shown += fits ? 1 : 0;
    });
    Array.prototype.forEach.call(document.querySelectorAll(".matrix .chapter"), function (chapter) {
      var next = chapter.nextElementSibling, empty = true;
      for (; next && !next.classList.contains("chapter"); next = next.nextElementSibling)
        empty = empty && next.hidden;
      chapter.hidden = empty;
    });
    count.textContent = shown + " of " + rows.length;
  }

  tests.addEventListener("click", function () {
    var open = tests.textContent === "show all tests";
    Array.prototype.forEach.call(document.querySelectorAll(".matrix input"), function (box) {
      box.checked = open;
    });
    tests.textContent = open ? "hide all tests" : "show all tests";
  });
  text.addEventListener("input", apply);
  kind.addEventListener("change", apply);
  apply();
})();
