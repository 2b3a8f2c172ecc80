#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# add_collectives.sh GUIDE BACKEND_C: prints the example backend with what the guide adds to it for
# collectives, so that the guide's program is one that is compiled and run.
set -u
guide=${1:?usage: add_collectives.sh GUIDE BACKEND_C} backend=${2:?}
awk -v guide="$guide" '
    /^\/\* --- the table: what is not named/ {
        while ((getline line < guide) > 0) {
            if (line == "```") inside = 0
            if (inside && wanted) print line
            if (line == "```c") { inside = 1; wanted = 0; first = 1 }
            else if (inside && first) {
                first = 0
                wanted = line ~ /kernels\/cpu\/comm\.h/
                if (wanted) { print line; found = 1 }
            }
        }
        print ""
    }
    { sub(/SYMMEM_CAP_DIRECT_ACCESS,$/, "&\n                    SYMMEM_CAP_COLLECTIVES,")
      sub(/DIRECT_ACCESS,\n/, "DIRECT_ACCESS |\n")
      sub(/\.signal_bytes = example_signal_bytes/, ".signal_bytes = signal_bytes")
      sub(/\.barrier = example_barrier/, ".barrier = checked_barrier")
      sub(/^    \.copy = /, "    .collective = example_collective,\n&")
      print }
    END { exit !found }' "$backend"
