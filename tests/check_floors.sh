#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The floors of core/ and of backend_cuda/: a file includes headers of its own floor and of those below it.
# The files in the folder itself stand above all floors; a header there that a floor includes brings nothing
# from above that floor. No part of the product includes a private header of another one. No folder has more
# than 20 .c files, or two files with a static function of one name. No function but the public calls has more
# than 8 parameters.
#
#     tests/check_floors.sh [ROOT]         looks at the project, or at another tree like it
#     tests/check_floors.sh --self-test
set -u
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd) || exit 1
parts=(core backend_cuda backend_nccl backend_shm_emul kernels)
failures=0
complain() { echo "$*" && failures=1; }

# Prints "FILE HEADER" for each include of a header of the tree, however it is written.
includes() {
    find "${parts[@]}" -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' | sort |
        awk '
            function clean(path) {
                gsub(/\/\.\//, "/", path)
                while (match(path, /[^\/.]+\/\.\.\//)) path = substr(path, 1, RSTART - 1) substr(path, RSTART + RLENGTH)
                return path
            }
            BEGIN { count = split("core/ core/include/ backend_cuda/ kernels/ backend_shm_emul/ backend_nccl/", roots, " ") }
            { files[++total] = $0; is_there[$0] = 1 }
            END {
                for (f = 1; f <= total; f++) {
                    folder = files[f]
                    sub(/[^\/]*$/, "", folder)
                    while ((getline line < files[f]) > 0) {
                        if (!match(line, /^[ \t]*#[ \t]*include[ \t]*["<][^">]*/)) continue
                        sub(/^[^"<]*["<]/, "", line)
                        sub(/[">].*/, "", line)
                        target = clean(folder line)
                        part = files[f]
                        sub(/\/.*/, "/", part) # the own part first: others have headers of the same name
                        if (!(target in is_there)) target = clean(part line)
                        for (i = 1; i <= count && !(target in is_there); i++) target = clean(roots[i] line)
                        if (target in is_there) print files[f], target
                    }
                    close(files[f])
                }
            }'
}

# Each floor is a folder, or several with commas between them.
check_floors() { # FOLDER FLOOR...
    local root=$1 floor name number=0 file target folder own
    local -A height=() brings=()
    shift
    for floor; do
        number=$((number + 1))
        for name in ${floor//,/ }; do height[$root/$name]=$number; done
    done
    while read -r folder; do
        [ -n "${height[$folder]:-}" ] || complain "$folder is on no floor of $root"
    done < <(find "$root" -mindepth 2 -name '*.[ch]' ! -path 'core/include/*' -printf '%h\n' | sort -u)
    while read -r file target; do # what the headers for all bring
        [[ ${file%/*} == "$root" && $file == *.h && -n ${height[${target%/*}]:-} ]] && brings[$file]+=" $target"
    done <<<"$edges"
    while read -r file target; do
        own=${height[${file%/*}]:-}
        [ -n "$own" ] || continue
        for name in "$target" ${brings[$target]:-}; do
            [ "$own" -ge "${height[${name%/*}]:-0}" ] || complain "$file includes \"$name\" of a floor above its own"
        done
    done <<<"$edges"
}

check_parts() {
    local file target
    while read -r file target; do
        [ "${file%%/*}" != "${target%%/*}" ] || continue
        case $target:$file in
        core/include/* | core/base/index.h:backend_* | core/base/treap.h:backend_* | kernels/*:backend_* | kernels/*:core/* | backend_cuda/cuda_device.h:backend_nccl/nccl_internal.h) ;;
        *) complain "$file includes \"$target\", a private header of ${target%%/*}" ;;
        esac
    done <<<"$edges"
}

# Names of functions that two files of a folder define as static, also over several lines.
repeated() { # FOLDER
    local file
    for file in "$1"/*.c; do
        grep -Pzo '(?m)^(?:__attribute__\s*\(\(.*?\)\)\s*)?static\b(?:[^;={}()]|__attribute__\s*\(\(.*?\)\))*?\b\K(?!__attribute__)\w+(?=\s*\()' \
            "$file" | tr '\0' '\n' | sort -u
    done | sort | uniq -d
}

check_folders() {
    local folder count name
    while read -r folder; do
        count=$(find "$folder" -maxdepth 1 -name '*.c' | wc -l)
        [ "$count" -le 20 ] || complain "$folder has $count .c files, more than 20"
        [ "$count" -eq 0 ] || for name in $(repeated "$folder"); do
            complain "$folder: static $name in two files"
        done
    done < <(find "${parts[@]}" -type d ! -path '*/doc' | sort)
}

# Definitions of functions with more than 8 parameters, also over several lines.
crowded() { # FILE
    grep -Pzo '(?m)^[a-z][\w *]*?\b\K(?!symmem_)\w+(?=\((?:[^(),;{}]|\([^()]*\))*+(?:,(?:[^(),;{}]|\([^()]*\))*+){8,}\)\s*\{)' "$1" |
        tr '\0' '\n'
}

check_parameters() {
    local file name
    while read -r file; do
        for name in $(crowded "$file"); do complain "$file: $name has more than 8 parameters"; done
    done < <(find "${parts[@]}" -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort)
}

check_all() {
    edges=$(includes)
    check_floors core base store bootstrap backend memory rendezvous stream ops,ops/composed
    check_floors backend_cuda driver stream,inflight memory signal collective product
    check_parts
    check_folders
    check_parameters
    return "$failures"
}

refuses() { # PATTERN FILE TEXT...: whether the tree with that line in that file is refused with that pattern
    local pattern=$1 file=$2
    shift 2
    mkdir -p "$tree/${file%/*}" && printf '%s\n' "$@" >>"$tree/$file"
    "$here/tests/check_floors.sh" "$tree" | grep -q "$pattern" || { echo "not found: $* in $file" && status=1; }
    rm -- "$tree/$file"
}

self_test() {
    local status=0 tree part i
    tree=$(mktemp -d) || return 1
    for part in core/base core/memory core/ops core/include/symmem backend_cuda/driver backend_cuda/product \
        backend_cuda/signal backend_nccl backend_shm_emul kernels/cpu; do mkdir -p "$tree/$part"; done
    touch "$tree"/core/{memory/alloc,ops/collective,include/symmem/symmem}.h "$tree"/backend_cuda/{cuda_internal,cuda_device}.h \
        "$tree"/backend_cuda/{product/blas,signal/signal}.h "$tree/backend_shm_emul/op.h"
    printf '#include "memory/alloc.h"\n#include <symmem/symmem.h>\nstatic int a(void) {\n' >"$tree/core/ops/a.c"
    printf '#include "cuda_device.h"\n' >"$tree/backend_nccl/nccl_internal.h"
    "$here/tests/check_floors.sh" "$tree" || status=1
    for i in '#include "memory/alloc.h"' '# include "memory/alloc.h"' '#include  "../memory/alloc.h"' '#include <memory/alloc.h>'; do
        refuses 'a floor above' core/base/clock.c "$i"
    done
    refuses 'on no floor' core/zzz/a.c 'int a;'
    refuses 'on no floor' core/base/x/a.c 'int a;'
    refuses 'a private header' backend_nccl/a.c '#include "../backend_cuda/signal/signal.h"'
    refuses 'a private header' backend_nccl/a.c '#include "cuda_device.h"'
    refuses 'a private header' backend_cuda/signal/a.c '#include "../../backend_shm_emul/op.h"'
    refuses 'a private header' kernels/cpu/a.c '#include "memory/alloc.h"'
    refuses 'a private header' core/context.c '#include "../backend_shm_emul/op.h"'
    printf '#include "cuda_internal.h"\n' >"$tree/backend_cuda/driver/a.c"
    refuses 'a floor above' backend_cuda/cuda_internal.h '#include "product/blas.h"'
    refuses 'in two files' core/ops/b.c 'static int' 'a(void) {'
    refuses 'in two files' core/ops/b.c 'static __attribute__((noinline)) int a(void) {'
    refuses 'b has more than 8' core/ops/b.c 'static int b(int a, int b, int c, int d, void (*e)(int, int),' \
        '             int f, int g, int h, int i) {'
    for part in core kernels core/base; do
        for i in {1..21}; do touch "$tree/$part/f$i.c"; done
        refuses "$part has 21" "$part/g.h" ''
        rm -- "$tree/$part"/f*.c
    done
    rm -r -- "$tree"
    return "$status"
}

[ "${1:-}" != --self-test ] || { self_test && exit; exit 1; }
cd -- "${1:-$here}" && check_all
