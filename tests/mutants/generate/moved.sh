#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# moved.sh OUT ROOT: gives what coverage.sh has counted in OUT, of the sources in OUT/sources, the line
# numbers of those in ROOT. A line that stayed keeps its tests; a new one gets those of what it replaces and
# of four lines on either side: some too many. False, with nothing changed, if ROOT has a file that was not
# there: then all has to be counted again.
set -u
out=$1 root=$2
files=$(cd "$out/sources" && find . -type f -name '*.[ch]' | sed 's|^[.]/||') || exit 1
while IFS= read -r file; do
    [ -f "$out/sources/$file" ] || exit 1
done < <(cd "$root" && find core backend_shm_emul kernels/*.h kernels/{cpu,reference} -type f -name '*.[ch]')

while IFS= read -r file; do
    [ -f "$root/$file" ] && ! cmp -s "$out/sources/$file" "$root/$file" || continue
    diff --old-line-format=$'-\n' --new-line-format=$'+\n' --unchanged-line-format=$'=\n' \
        "$out/sources/$file" "$root/$file" | awk -v file="$file" '
        function pairs(from, to,   i, k) { # of the last change with the lines around it
            for (i = first_new; i <= last_new; i++)
                for (k = from; k <= to; k++) print file, k, i
        }
        function finish() { if (last_new) pairs(start - 3, end + 4); last_new = 0 }
        /^=/ { if (changing) { end = old; finish(); changing = 0 } old++; new++; print file, old, new; next }
        !changing { changing = 1; start = old; first_new = new + 1; last_new = 0 }
        /^-/ { old++ }
        /^[+]/ { last_new = ++new }
        END { end = old; if (changing) finish() }'
done <<<"$files" >"$out/moves"

find "$out" -mindepth 1 -maxdepth 2 -type f ! -path '*/sources/*' -print0 |
    xargs -0 awk -v moves="$out/moves" '
    BEGIN { while ((getline <moves) > 0) { now[$1, $2] = now[$1, $2] " " $3; moved[$1] } }
    FNR == 1 { if (output) close(output); output = ""
        if (FILENAME !~ /\/(moves|of)$/) output = FILENAME ".moved" }
    !output { next }
    !($1 in moved) { print >output; next }
    { line = $1; split("", seen)
      for (i = 2; i <= NF; i++) { n = split(now[$1, $i], to, " ")
          for (k = 1; k <= n; k++) if (!(to[k] in seen)) { seen[to[k]]; line = line " " to[k] } }
      print line >output }' || exit 1
find "$out" -name '*.moved' -exec sh -c 'for file; do mv "$file" "${file%.moved}"; done' sh {} +
rm "$out/moves"
