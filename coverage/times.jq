# SPDX-License-Identifier: BSD-3-Clause
# The results of tests/bench/gpu.sh with the most rows, as an SVG: for each collective how long it takes by
# what each rank passes in, symmem and the quickest of what each other library has, both axes by powers; and
# the barrier of all files of that device, by ranks.
# Arguments: jq -rs -f times.jq FILE...

def libraries: [["symmem", "#0b57d0", 2.4], ["PyTorch", "#c4541c", 1.3], ["NCCL", "#2e7d32", 1.3],
                ["NVSHMEM", "#7b3fb5", 1.3]];
def library_of: if startswith("nccl_") then "NCCL" elif startswith("nvshmem_") then "NVSHMEM" else "PyTorch" end;
def panels: [
    {title: "all-reduce", ops: ["one_shot_all_reduce", "two_shot_all_reduce", "all_reduce_in_place"]},
    {title: "all-gather", ops: ["all_gather", "all_gather_push"]},
    {title: "reduce-scatter", ops: ["reduce_scatter"]},
    {title: "broadcast", ops: ["broadcast"]},
    {title: "all-to-all", ops: ["all_to_all"]}];

def width: 300; def height: 210; def left: 44; def top: 26;
def plot_width: width - left - 14; def plot_height: height - top - 34;
# 1 KiB to 256 MiB; 1 to 2000 us.
def x: left + ((log2 - 10) / 18) * plot_width | . * 10 | round / 10;
def y: top + plot_height - (log10 / (2000 | log10)) * plot_height | . * 10 | round / 10;
def size: if . >= 1048576 then "\(. / 1048576)M" else "\(. / 1024)K" end;
def text($x; $y; $anchor): "<text x=\"\($x)\" y=\"\($y)\" text-anchor=\"\($anchor)\">\(.)</text>";

# [bytes, us] of one library, the least of all that it has for the panel's operations.
def points($panel; $library):
    [.results[] | select(.op as $op | $panel.ops | index($op)) | .bytes as $bytes
     | if $library == "symmem" then .symmem_us | select(. != null) | [$bytes, .median]
       else .other_us | to_entries[] | select(.key | library_of == $library) | [$bytes, .value.median] end]
    | group_by(.[0]) | map(min_by(.[1]));

def grid:
    (1, 10, 100, 1000 | y as $y
     | "<path class=\"grid\" d=\"M\(left) \($y)H\(left + plot_width)\"/>",
       ("\(.)" | text(left - 5; $y + 3.5; "end"))),
    (1024, 32768, 1048576, 33554432, 268435456 | x as $x
     | size | text($x; top + plot_height + 14; "middle")),
    ("bytes of each rank" | text(left + plot_width / 2; top + plot_height + 28; "middle")),
    ("us" | text(left - 5; top - 6; "end"));

def line($name; $color; $width):
    if length == 0 then empty else
    "<polyline fill=\"none\" stroke=\"\($color)\" stroke-width=\"\($width)\" points=\"\(map("\(.[0] | x),\(.[1] | y)") | join(" "))\"/>",
    (.[] | "<circle cx=\"\(.[0] | x)\" cy=\"\(.[1] | y)\" r=\"\($width)\" fill=\"\($color)\"><title>\($name), \(.[0] | size): \(.[1] * 10 | round / 10) us</title></circle>")
    end;

def panel($index; $panel):
    "<g transform=\"translate(\($index % 3 * width) \(($index / 3 | floor) * height + 44))\">",
    ("<tspan class=\"title\">\($panel.title)</tspan>" | text(left + plot_width / 2; 14; "middle")),
    grid,
    (. as $file | libraries | reverse[] as [$name, $color, $width]
     | $file | points($panel; $name) | line($name; $color; $width)),
    "</g>";

# Files of the device in the order of their ranks. The barrier that also ends the ranks' writes, where a
# library has another one.
def barriers:
    map(. as $file | .results[] | select(.op == "barrier") | . as $row
        | {ranks: $file.ranks,
           us: ({symmem: $row.symmem_us.median}
                + ($row.other_us | with_entries(select(.key != "nvshmem_sync") | .key |= library_of | .value |= .median)))})
    | sort_by(.ranks);

def bar($group; $place; $scale; $name; $color):
    (left + 14 + $group * 76 + $place * 18) as $at
    | (. * $scale * 10 | round / 10) as $high
    | "<rect x=\"\($at)\" y=\"\(top + plot_height - $high)\" width=\"14\" height=\"\($high)\" fill=\"\($color)\"><title>\($name): \(. * 100 | round / 100) us</title></rect>",
      ("\(. * 10 | round / 10)" | text($at + 7; top + plot_height - $high - 3; "middle"));

def barrier_panel:
    (plot_height - 16) as $most | ($most / (map(.us[]) | max)) as $scale
    | "<g transform=\"translate(\(2 * width) \(height + 44))\">",
      ("<tspan class=\"title\">barrier</tspan>" | text(left + plot_width / 2; 14; "middle")),
      (to_entries[] | .key as $group | .value as $file
       | libraries | to_entries[] | .key as $place | .value as [$name, $color]
       | $file.us[$name] | select(. != null) | bar($group; $place; $scale; $name; $color)),
      (to_entries[] | (left + 42 + .key * 76) as $x | "\(.value.ranks) ranks" | text($x; top + plot_height + 14; "middle")),
      ("us" | text(left - 5; top - 6; "end")),
      "</g>";

def legend($names):
    libraries | map(select(.[0] as $name | $names | index($name))) | to_entries[] | .key as $i | .value as [$name, $color, $width]
    | "<path stroke=\"\($color)\" stroke-width=\"\($width)\" d=\"M\(44 + $i * 100) 34h22\"/>",
      ($name | text(44 + $i * 100 + 28; 38; "start"));

. as $files
| max_by(.results | length)
| .symmem.device as $device
| (["symmem"] + ([.results[].other_us | keys[] | library_of] | unique)) as $names
| "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 \(3 * width + 8) \(2 * height + 50)\" role=\"img\">",
  "<style>text{font:10px sans-serif;fill:#333}.title{font:bold 12px sans-serif}.grid{stroke:#ddd}</style>",
  "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>",
  ("\(.ranks) x \($device): times of captured operations in microseconds, medians of \(.rounds) rounds, commit \(.symmem.commit[:7])"
   | text(44; 18; "start")),
  legend($names),
  (. as $file | panels | to_entries[] | .key as $i | .value as $panel | $file | panel($i; $panel)),
  ($files | map(select(.symmem.device == $device)) | barriers | select(length > 0) | barrier_panel),
  "</svg>"
