#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# check_kernel_stack.sh USAGE: what the compiler said of each kernel. None may need more stack than a
# context has from the start, 1024 bytes a thread: the driver makes it larger at the first launch
# that needs it and waits for all that runs in the context first, a kernel that waits for this one
# too. Exit status 1 if one does, or if none is found.
awk -v most=1024 '
/Compiling entry function/ { split($0, part, "\047"); name = part[2]; kernels++ }
/cumulative stack size/ {
    for (i = 1; i < NF; i++)
        if ($(i + 1) == "bytes" && $(i + 2) == "cumulative" && $i > most) {
            print name ": " $i " bytes of stack, more than " most
            failed = 1
        }
}
END {
    print kernels + 0 " kernels"
    exit failed || kernels == 0
}' "$1"
