#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# add_collectives.sh GUIDE BACKEND_C: prints the example backend with what the guide adds to it for
# collectives, so that the guide's program is one that is compiled and run.
set -u
guide=${1:?usage: add_collectives.sh GUIDE BACKEND_C} backend=${2:?}
awk -v guide="$guide" '
    /^\/\* --- the table: a group that is not named/ {
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
    /^static const symmem_backend table/ {
        print "static const symmem_collective_ops collective_ops = {"
        print "    .size = sizeof(symmem_collective_ops),"
        print "    .run = example_collective,"
        print "};\n"
    }
    { sub(/\.bytes = example_signal_bytes/, ".bytes = signal_bytes")
      sub(/\.barrier = example_barrier/, ".barrier = checked_barrier")
      sub(/^    \.copy = &copy_ops}/, "    .copy = \\&copy_ops,\n    .collective = \\&collective_ops}")
      print }
    END { exit !found }' "$backend"
