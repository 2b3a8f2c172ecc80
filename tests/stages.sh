# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154
# The stages of test.sh. Each adds to stage_passed, stage_failed and stage_skipped through the
# helpers below and goes on after a failure, as far as that makes sense. A folder of tests/ may bring
# a stage of its own in a file stage.sh, which is sourced at the end. "stage_NAME" runs a stage, "about" says
# in a few words what it is for.

build_options=(-DSYMMEM_WERROR=ON)
run_limit=${SYMMEM_TEST_RUN_LIMIT:-600} # seconds for one run of a suite; ends what hangs

# --- helpers ---------------------------------------------------------------------------------------

verdict() { printf '  %-7s %s\n' "$1" "$2"; }

skip() { # NAME REASON
    verdict skipped "$1: $2"
    stage_skipped=$((stage_skipped + 1))
}

# Runs a command as one check; shows its output only if it fails.
check() { # NAME COMMAND...
    local name=$1 log=$logs/$stage.${1//[ ,\/]/_}.log
    shift
    if "$@" >"$log" 2>&1 </dev/null; then
        verdict ok "$name"
        stage_passed=$((stage_passed + 1))
    else
        verdict FAILED "$name"
        tail -n 40 "$log" | sed 's/^/    | /'
        stage_failed=$((stage_failed + 1))
        return 1
    fi
}

# Waits until the builder of test.sh has made a stage's tree, or FILE in it. Then waits for one of the
# processors' slots, which the stage has until its end.
made() { # TREE [FILE]
    check "build build-$1${2:+ as far as $2}" tree_is_made "$@" && take_turn
}

tree_is_made() { # TREE [FILE]
    # The builder may write the file and end between a look at one and at the other.
    while [ ! -f "$logs/$1.tree" ] && kill -0 "$builder" 2>/dev/null; do
        [ -z "${2:-}" ] || [ ! "build-$1/$2" -nt "$logs/begin" ] || return 0
        sleep 0.5
    done
    cat "$logs/$1.tree.log"
    [ "$(cat "$logs/$1.tree")" = 0 ]
}

take_turn() {
    local number
    while [ -z "$turn" ]; do
        for ((number = 1; number <= turns; number++)); do
            mkdir -- "$temporary/turn.$number" 2>/dev/null || continue
            turn=$temporary/turn.$number
            begin=$SECONDS # of the stage's own time
            return
        done
        sleep 0.5
    done
}

# Adds a run's counts; a run that failed without saying so counts as one failure.
add_counts() { # NAME LOG STATUS PASSED FAILED SKIPPED
    local name=$1 log=$2 status=$3 bad=$5
    if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then
        bad=1
    fi
    stage_passed=$((stage_passed + $4))
    stage_failed=$((stage_failed + bad))
    stage_skipped=$((stage_skipped + $6))
    if [ "$bad" -eq 0 ]; then
        verdict ok "$name: $4 passed, $6 skipped"
    else
        verdict FAILED "$name: $4 passed, $bad failed, $6 skipped, exit status $status"
        printf '    whole log: %s\n' "${log#"$root"/}"
        excerpt "$log" | cut -c 1-200 | sed 's/^/    | /'
    fi
}

# The same of a run whose log ends with its closing line; without one it is not a pass.
add_run() { # NAME LOG STATUS
    if [[ $(tail -n 1 "$2") =~ $closing_pattern ]]; then
        add_counts "$1" "$2" "$3" "${BASH_REMATCH[@]:1:3}"
    else
        add_counts "$1" "$2" "$(($3 > 0 ? $3 : 1))" 0 0 0
    fi
}

# What a reader of the log looks for first. Lines of cases that went well are no part of it: their
# names are full of words such as "failure".
excerpt() { # LOG
    grep -vE '^\[ *[0-9]+/[0-9]+\] (passed|skipped) |^ +Start +[0-9]+:|[Pp]assed( +[0-9.]+ sec)?$' "$1" |
        grep -nEi -A 12 'fail|error|crash|hang|unresolved|timeout|sanitizer' | head -n 60
    echo ...
    tail -n 8 "$1"
}

# Where mount namespaces are permitted: a command with a /dev/shm of its own.
own_shm=()
for namespace in "unshare -m" "unshare -Urm"; do
    read -ra namespace <<<"$namespace"
    if "${namespace[@]}" mount -t tmpfs tmpfs /dev/shm 2>/dev/null; then
        own_shm=("${namespace[@]}" sh -c "mount -t tmpfs -o mode=1777 tmpfs /dev/shm && exec \"\$@\"" sh)
        break
    fi
done
unset namespace

# All of a build whose names $only matches, but for those whose names $left_out matches or that have the
# label $left_label.
only=. left_out='' left_label=''
unit_tests() { # BUILD [COMMAND PREFIX...]
    local directory=$root/$1 log=$logs/$stage.unit.log report=$logs/$stage.unit.xml
    local lanes=8 # most only wait
    # Not where they compute: counts of coverage are merged under locks at each process's end.
    [ "$stage" = gcc ] || lanes=4
    shift
    rm -f "$report"
    timeout -k 15 "$run_limit" "${own_shm[@]}" "$@" ctest --test-dir "$directory" --output-on-failure \
        -R "$only" ${left_out:+-E "$left_out"} ${left_label:+-LE "$left_label"} --no-tests=error --timeout 300 --parallel "$lanes" --output-junit "$report" \
        >"$log" 2>&1 </dev/null
    local status=$? tests bad other
    tests=$(junit_count tests "$report")
    bad=$(junit_count failures "$report")
    other=$(($(junit_count skipped "$report") + $(junit_count disabled "$report")))
    add_counts "unit tests" "$log" "$status" $((tests - bad - other)) "$bad" "$other"
}

junit_count() { # ATTRIBUTE FILE
    local value=
    if [ -f "$2" ]; then
        value=$(sed -n "/<testsuite/,/>/s/.*[[:space:]]$1=\"\([0-9]*\)\".*/\1/p" "$2" | head -n 1)
    fi
    echo "${value:-0}"
}

# Runs a command for each word, so many at a time.
in_lanes() { # LANES COMMAND WORDS...
    local lanes=$1 command=$2 word running=0
    shift 2
    for word in "$@"; do
        [ "$running" -lt "$lanes" ] || wait -n
        "$command" "$word" &
        running=$((running + 1))
    done
    wait
}

# Where mount namespaces are permitted the runner keeps its files in memory and out of sight, if no TMPDIR
# says where else: on a disk they would take as much time as all else.
in_memory=()
[ "${#own_shm[@]}" -eq 0 ] || in_memory=(env -u TMPDIR)

# The suite on the CPU emulation, once for each string of runner options, those first that take long. A
# run has several cases at a time already; a second one beside it computes while the first waits for its
# last cases. PREFIX is an array that a stage may fill (setarch, unshare).
prefix=()
conformance() { # BUILD RUNNER_OPTIONS...
    local runner=$root/$1/bin/symmem-conformance options
    shift
    if [ ! -x "$runner" ]; then
        verdict FAILED "conformance: no symmem-conformance was built"
        stage_failed=$((stage_failed + 1))
        return
    fi
    : >"$logs/$stage.conformance" # what counts names is through: its ranks' are their own
    in_lanes 2 run_suite "$@"
    for options in "$@"; do
        count_suite "$options"
    done
}

suite_log() { # RUNNER_OPTIONS
    local name="conformance $1"
    echo "$logs/$stage.${name//[!A-Za-z0-9.-]/_}.log"
}

run_suite() { # RUNNER_OPTIONS, the runner is the caller's
    local log options
    log=$(suite_log "$1")
    read -ra options <<<"$1"
    rm -f -- "${log%.log}.json"
    "${in_memory[@]}" timeout -k 15 "$run_limit" "${prefix[@]}" "$runner" --backend shm "${options[@]}" \
        --report "json=$log.part" >"$log" 2>&1 </dev/null
    echo $? >"$log.status"
    # Whole at once: another stage may be making the page.
    [ ! -f "$log.part" ] || mv -- "$log.part" "${log%.log}.json"
}

count_suite() { # RUNNER_OPTIONS
    local log
    log=$(suite_log "$1")
    add_run "conformance $1" "$log" "$(cat "$log.status")"
    rm -f "$log.status"
}

# Sanitizer runtimes of common compilers do not start where the kernel randomises more address bits
# than they expect. Where that may be so, they run without randomisation.
sanitizer_prefix() {
    local bits=/proc/sys/vm/mmap_rnd_bits
    prefix=()
    if { [ ! -r "$bits" ] || [ "$(cat "$bits")" -gt 28 ]; } && setarch -R true 2>/dev/null; then
        prefix=(setarch -R)
    fi
}

# --- installation beyond lib.sh --------------------------------------------------------------------

# Formatting differs between major versions of clang-format; ours is 14.
clang_format() {
    if have_command clang-format-14; then
        echo clang-format-14
    elif clang-format --version 2>/dev/null | grep -q 'version 14\.'; then
        echo clang-format
    fi
}

need_clang_format() {
    if [ -z "$(clang_format)" ]; then
        local name=clang-format
        ! have_command apt-cache || [ -z "$(apt-cache search -n '^clang-format-14$')" ] ||
            name=clang-format-14
        have_command "$name" || missing_packages+=("$name")
    fi
}

# Debian and Ubuntu split clang's sanitizer runtime off; its package carries clang's version.
clang_links() { # SANITIZERS
    local program
    program=$(mktemp) || return 1
    echo 'int main(void) { return 0; }' |
        clang "-fsanitize=$1" -x c - -o "$program" 2>/dev/null
    local status=$?
    rm -f "$program"
    return "$status"
}

# libclang's C interface, which versions keep in folders of their own.
need_libclang() {
    [ -n "$(find /usr/lib/llvm-*/include /usr/include -path '*clang-c/Index.h' 2>/dev/null | head -n 1)" ] ||
        missing_packages+=(libclang-dev)
}

install_clang_runtime() {
    clang_links address,undefined && return 0
    local version
    version=$(clang --version | sed -n 's/.*version \([0-9]*\)\..*/\1/p' | head -n 1)
    missing_packages=("libclang-rt-$version-dev")
    # Before version 14 the runtime is a part of libclang-common.
    [ "$version" -ge 14 ] || missing_packages=("libclang-common-$version-dev")
    install_missing
}

# --- the trees -------------------------------------------------------------------------------------

# Which trees a stage needs: its own, or the plain one.
trees_of() { # STAGE
    case $1 in
    clang) echo gcc clang ;;
    builds) ;;
    races) echo tsan ;;
    *) declare -F "make_$1" >/dev/null && echo "$1" || echo gcc ;;
    esac
}

optimized=("-DCMAKE_C_FLAGS_RELWITHDEBINFO=-O2 -DNDEBUG" "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O2 -DNDEBUG")

# The kernels' machine code takes nvcc as long as the rest of the tree: a run without the stage gpu-backends
# has nvcc translate them only as far as what the driver would be given.
make_gcc() {
    local code="-DSYMMEM_CUDA_CODE=arch=compute_90,code=compute_90"
    ! builds_all_code || code=-USYMMEM_CUDA_CODE
    build_in build-gcc -DCMAKE_C_COMPILER=gcc "${optimized[@]}" "$code"
}

builds_all_code() { [[ " ${stages[*]} " == *" gpu-backends "* ]]; }

# The library and the emulation as another compiler has them; the suite is the plain tree's. What is undefined
# ends the process, which needs nothing of UndefinedBehaviorSanitizer's to be linked.
make_clang() {
    build_target="symmem symmem_backend_shm" build_in build-clang -DCMAKE_C_COMPILER=clang \
        -DSYMMEM_GPU_BACKENDS=OFF "${optimized[@]}" "-DCMAKE_C_FLAGS=-fsanitize=undefined -fsanitize-trap=undefined"
}

# Quick to compile, and reports still name lines.
sanitized=(-DCMAKE_BUILD_TYPE=None "-DCMAKE_C_FLAGS=-O1 -g1" "-DCMAKE_CXX_FLAGS=-O1 -g1")

# What waits far more than it computes is the quicker the less time it takes to compile. Not in the plain
# tree: some of gcc's warnings come with optimization only.
quick_tests=-DSYMMEM_UNIT_OPTIONS=-O0

make_asan() {
    build_in build-asan -DCMAKE_C_COMPILER=clang -DSYMMEM_SANITIZE=address,undefined "$quick_tests" "${sanitized[@]}"
}

make_tsan() {
    [[ " ${stages[*]} " == *" tsan "* ]] || local build_target=races
    build_in build-tsan -DCMAKE_C_COMPILER=gcc -DSYMMEM_SANITIZE=thread "$quick_tests" "${sanitized[@]}"
}

make_msan() {
    clang_links memory || return 0 # the stage says so
    build_target=suite build_in build-msan -DCMAKE_C_COMPILER=clang -DSYMMEM_SANITIZE=memory \
        -DSYMMEM_GPU_BACKENDS=OFF "${sanitized[@]}"
}

# The newest clang that counts MC/DC and has its tools beside it; nothing if there is none.
mcdc_clang() {
    local clang program status=1
    program=$(mktemp) || return 1
    for clang in $(compgen -c clang- | grep -xE 'clang-[0-9]+' | sort -ut- -k2nr) clang; do
        echo 'int main(void) { return 0; }' |
            "$clang" -fprofile-instr-generate -fcoverage-mapping -fcoverage-mcdc -x c - -o "$program" || continue
        have_command "$("$clang" -print-prog-name=llvm-cov)" || continue
        have_command "$("$clang" -print-prog-name=llvm-profdata)" || continue
        echo "$clang"
        status=0
        break
    done 2>/dev/null
    rm -f "$program"
    return "$status"
}

# Of core/ and backend_shm_emul/, so without the backends for GPUs.
make_coverage() {
    local compiler
    compiler=$(mcdc_clang) || compiler=gcc
    grep -qs "^CMAKE_C_COMPILER:.*[/=]$compiler\$" build-coverage/CMakeCache.txt || rm -rf build-coverage
    build_in build-coverage "-DCMAKE_C_COMPILER=$compiler" -DSYMMEM_COVERAGE=ON -DSYMMEM_GPU_BACKENDS=OFF \
        "$quick_tests" "${sanitized[@]}"
}

# --- the stages ------------------------------------------------------------------------------------

about() { # STAGE
    case $1 in
    style) echo "format, headers by themselves, exported symbols, the trace" ;;
    unit) echo "unit tests" ;;
    suite) echo "the suite with 4 ranks as processes and 2 as threads" ;;
    races) echo "ThreadSanitizer on the cases of memory ordering" ;;
    changed) echo "mutants of the functions that changed, and a sample of the others" ;;
    worlds) echo "the suite with 1, 5 and 8 ranks, and in 64 MiB of shared memory" ;;
    inputs) echo "users' programs that failed once" ;;
    builds) echo "other compilers, build types and another C library, and symmem inside other projects" ;;
    faults) echo "whole jobs in which a call fails or ranks are killed" ;;
    withheld) echo "each rank missing in turn, worlds of up to 128 ranks" ;;
    clang) echo "the library by clang, in which undefined behavior traps" ;;
    asan) echo "AddressSanitizer and UndefinedBehaviorSanitizer, tests included" ;;
    tsan) echo "ThreadSanitizer" ;;
    msan) echo "MemorySanitizer" ;;
    coverage) echo "lines, branches and MC/DC, with their thresholds" ;;
    fuzz) echo "each fuzz target for some seconds" ;;
    mutants) echo "all mutants" ;;
    generated) echo "a sample of generated mutants" ;;
    launchers) echo "ranks that mpirun, srun and torchrun start, without a folder" ;;
    pytorch) echo "PyTorch's symmetric memory on CPU tensors, with torch from PyPI" ;;
    plugin) echo "the example backend and those over MPI, OpenSHMEM and NVSHMEM, built from an installed symmem" ;;
    bad-backends) echo "what the runner says to backends that do harm" ;;
    gpu-backends) echo "the backends for GPUs, without one" ;;
    multicast) echo "CUDA multicast on the fake driver" ;;
    esac
}

stage_unit() {
    made gcc || return
    local left_label=''
    if ! builds_all_code && grep -q '^NVCC:FILEPATH=/' build-gcc/CMakeCache.txt; then
        left_label=whole
        echo "the CUDA kernels' machine code, and some of their runs on the fake driver (see gpu-backends)" \
            >"$logs/$stage.left-out"
    fi
    unit_tests build-gcc
}

# Large memory in one of the lanes: each takes up to 9 GiB, and other stages may run beside.
stage_suite() {
    made gcc suite.made || return
    conformance build-gcc "--ranks 4" "--ranks 2 --rank-mode thread --no-large"
    # Peers without pointers, on the suite's own engine.
    local engine=$root/build-gcc/lib/tests/reach.so inside=$root/build-gcc/lib/tests/reach_inside.so
    conformance build-gcc "--ranks 4 --no-large --backend $engine" "--ranks 2 --no-large --backend $engine"
    # The same where bytes move inside calls only.
    conformance build-gcc "--ranks 2 --no-large --backend $inside --filter reach*,world*,onesided*,signal*,barrier*"
}

# With 8 ranks all but what the stage "withheld" does there, and more of it. In a mount namespace of its own
# /dev/shm is as small as containers have it.
stage_worlds() {
    made gcc suite.made || return
    conformance build-gcc "--ranks 8 --no-large --filter [!w]*,wa*,wo*" "--ranks 5 --no-large" \
        "--ranks 2 --no-large" "--ranks 1 --no-large"
    if [ "${#own_shm[@]}" -eq 0 ]; then
        skip "64 MiB of shared memory" "mount namespaces are not permitted here"
        return
    fi
    prefix=("${own_shm[@]}" sh -c 'mount -o remount,size=64m /dev/shm && exec "$@"' sh)
    conformance build-gcc "--ranks 4"
    prefix=()
}

# A script whose last line counts what it ran.
counted_script() { # SCRIPT ARGUMENTS...
    local log=$logs/$stage.run.log status
    "${own_shm[@]}" timeout -k 15 "$run_limit" "$@" >"$log" 2>&1 </dev/null
    status=$?
    if [[ $(tail -n 1 "$log") =~ $closing_pattern ]]; then
        add_counts "$stage" "$log" "$status" "${BASH_REMATCH[@]:1:3}"
    else
        add_counts "$stage" "$log" 1 0 0 0
    fi
}

stage_inputs() {
    made gcc || return
    counted_script tests/inputs.sh build-gcc
}

# An hour where two processors compile every row anew.
stage_builds() {
    local run_limit=7200
    counted_script tests/builds.sh
}

stage_clang() {
    made clang && made gcc suite.made || return
    prefix=(env LD_LIBRARY_PATH="$root/build-clang/lib")
    check "the suite finds what clang made" finds_library "${prefix[@]}" || return
    conformance build-gcc "--ranks 2 --no-large" "--ranks 2 --rank-mode thread --no-large"
    prefix=()
}

finds_library() { # COMMAND PREFIX...
    # It looks for backends beside its library.
    "$@" LD_DEBUG=files timeout 120 build-gcc/bin/symmem-conformance --backend shm --ranks 1 --filter 'barrier.*' 2>&1 |
        grep "calling init: $root/build-clang/lib/libsymmem_backend_shm"
}

stage_asan() {
    made asan || return
    export SYMMEM_TIMEOUT_SCALE=$((time_scale * 3))
    export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1
    export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
    sanitizer_prefix
    unit_tests build-asan "${prefix[@]}"
    conformance build-asan "--ranks 3 --no-large" "--ranks 7 --no-large --filter coll*,move*,reduce*,ops*,group*" \
        "--ranks 5 --no-large --filter coll*,move*,reduce*,ops*,group*" # three have what is for two of them
    prefix=()
    unset ASAN_OPTIONS UBSAN_OPTIONS
}

# Threads only: ThreadSanitizer sees a missing release or acquire only through one mapping.
with_tsan() { # COMMAND...
    made tsan || return
    export SYMMEM_TIMEOUT_SCALE=$((time_scale * 5))
    export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
    sanitizer_prefix
    "$@"
    prefix=()
    unset TSAN_OPTIONS
}

stage_tsan() { with_tsan all_under_tsan; }

all_under_tsan() {
    # One thread each: nothing that ThreadSanitizer could see.
    left_out='^(report|museum|readme)[.]|^unit[.]test_runner_'
    unit_tests build-tsan "${prefix[@]}"
    conformance build-tsan "--rank-mode thread --ranks 4 --no-large" # and for two or three of them
}

stage_races() { with_tsan some_under_tsan; }

some_under_tsan() {
    # Those that the target "races" builds.
    only='^unit[.]test_(shm_(stream|graph|matmul)|nccl_coll_comm(_limits)?)$'
    unit_tests build-tsan "${prefix[@]}"
    conformance build-tsan "--rank-mode thread --ranks 2 --no-large \
--filter litmus*,signal.*,barrier.*,onesided.*,fill.*,thread.*,stream.*order*,capture.*,order.*"
}

# The suite only: a library without instrumentation, such as CUnit, would be taken for one that sets nothing.
stage_msan() {
    if ! clang_links memory; then
        skip msan "this clang has no MemorySanitizer"
        return
    fi
    made msan || return
    export SYMMEM_TIMEOUT_SCALE=$((time_scale * 3))
    sanitizer_prefix
    conformance build-msan "--ranks 2 --no-large" "--ranks 3 --rank-mode thread --no-large"
    prefix=()
}

stage_coverage() {
    made coverage || return
    export SYMMEM_TIMEOUT_SCALE=$((time_scale * 2))
    find build-coverage -name '*.gcda' -delete # counts of earlier runs
    rm -rf build-coverage/counts
    mkdir -m 1777 build-coverage/counts # also for processes of another user
    # Tests of other rooms would add nothing but time.
    left_out='^(report|museum|bench)[.]|^unit[.]test_(runner|matmul_cpu|reduce_|cuda_)'
    unit_tests build-coverage
    local keep=''
    if ! grep -qs '^CMAKE_C_COMPILER:.*clang' build-coverage/CMakeCache.txt; then
        skip "MC/DC" "no clang here counts it: gcov's lines and branches only (packages clang-19, llvm-19)"
        keep=--keep-ranks # each process writes a file for each source when it ends: fewer are quicker
    fi
    conformance build-coverage "--ranks 4 --no-large $keep" "--ranks 2 --rank-mode thread --no-large"
    # Peers without pointers, on the suite's own engines.
    local engine=$root/build-coverage/lib/tests/reach.so inside=$root/build-coverage/lib/tests/reach_inside.so
    conformance build-coverage "--ranks 4 --no-large --backend $engine $keep" "--ranks 2 --no-large --backend $inside $keep"
    check thresholds coverage/check.sh build-coverage &&
        sed 's/^/    /' "$logs/coverage.thresholds.log"
    report_page build-coverage
}

# One page from the recorded runs and those of all stages so far.
report_page() { # BUILD
    if [ ! -x "$1/bin/symmem-report" ]; then
        skip "report page" "no symmem-report was built, libcjson is missing"
        return
    fi
    check "report page" coverage/build.sh && sed 's/^/    /' "$logs/$stage.report_page.log"
}

stage_style() {
    local formatter
    formatter=$(clang_format)
    if [ -n "$formatter" ]; then
        check format check_format "$formatter"
    else
        skip format "no clang-format 14 on this machine"
    fi
    local compiler
    for compiler in "gcc -x c -std=c11" "clang -x c -std=c11" \
        "g++ -x c++ -std=c++17" "clang++ -x c++ -std=c++17" "g++ -x c++ -std=c++98"; do
        check "headers stand alone, ${compiler%% *} ${compiler##*=}" check_headers "$compiler"
    done
    check "floors of core" tests/check_floors.sh
    check "words of comments" tests/check_words.sh
    check "words of comments, bad examples" tests/check_words.sh --self-test
    made gcc || return
    check "exported symbols" check_symbols
    if [ -x build-gcc/bin/symmem-conformance ]; then
        check trace build-gcc/bin/symmem-conformance --check-trace
    else
        skip trace "no symmem-conformance was built"
    fi
    sources '*.c' '*.h' | xargs wc -l |
        awk '$1 > 500 && $2 != "total" { print "  warning " $2 ": " $1 " lines, more than 500" }'
}

# What is built against headers that not every machine has: the backends for GPUs, which without a
# driver have to say so. What else of them can be seen without a GPU unit.test_nccl* show.
stage_gpu_backends() {
    made gcc || return
    local room
    for room in cuda nccl; do
        if grep -q "^${room^^}_INCLUDE_DIR:PATH=.*-NOTFOUND" build-gcc/CMakeCache.txt ||
            ! grep -q "^CUDA_INCLUDE_DIR:PATH=/" build-gcc/CMakeCache.txt; then
            skip "backend_$room" "no ${room^^} headers on this machine"
            continue
        fi
        check "backend_$room" cmake --build build-gcc --target "symmem_backend_$room"
        if cmake --build build-gcc --target help | grep -q "symmem-$room-check"; then
            check "symmem-$room-check" cmake --build build-gcc --target "symmem-$room-check"
        fi
        if ! ldconfig -p | grep -q 'libcuda\.so\.1'; then
            check "backend_$room without a driver" refused_without_driver "$room"
        fi
    done
}

refused_without_driver() { # ROOM
    local answer
    answer=$(build-gcc/bin/symmem-conformance --backend "$1" --ranks 2 --filter 'barrier*' 2>&1)
    [ $? -eq 3 ] && grep 'UNSUPPORTED.*no driver' <<<"$answer"
}

# --- parts of the style stage -----------------------------------------------------------------------

sources() { # PATTERN...
    if git rev-parse --git-dir >/dev/null 2>&1; then
        git ls-files --cached --others --exclude-standard -- "$@"
    else
        local names=() pattern
        for pattern in "$@"; do
            names+=(-o -name "$pattern")
        done
        find . -path './build*' -prune -o -type f \( "${names[@]:1}" \) -print
    fi
}

check_format() { # FORMATTER
    sources '*.c' '*.h' | xargs "$1" --style=file --dry-run -Werror
}

check_headers() { # COMPILER AND OPTIONS
    local header command
    read -ra command <<<"$1"
    for header in core/include/symmem/*.h; do
        printf '#include <symmem/%s>\n' "${header##*/}" |
            "${command[@]}" -pedantic -Wall -Wextra -Werror -Icore/include -fsyntax-only - ||
            return 1
    done
}

# A backend exports its entry and nothing else; the library exports only names that begin symmem_.
check_symbols() {
    local object names result=0
    for object in build-gcc/lib/libsymmem_backend_*.so; do
        names=$(nm -D --defined-only "$object" | awk '{ print $3 }')
        if [ "$names" != symmem_backend_entry ]; then
            printf '%s exports:\n%s\n' "$object" "$names"
            result=1
        fi
    done
    names=$(nm -D --defined-only build-gcc/lib/libsymmem.so | awk '$3 !~ /^symmem_/ { print $3 }')
    if [ -n "$names" ]; then
        printf 'libsymmem.so exports:\n%s\n' "$names"
        result=1
    fi
    return "$result"
}

# --- stages of their own rooms ----------------------------------------------------------------------

for file in tests/*/stage.sh; do
    # shellcheck source=/dev/null
    [ ! -f "$file" ] || . "$file"
done
