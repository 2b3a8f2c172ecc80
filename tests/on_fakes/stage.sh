# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154
# The stage of test.sh: the CUDA backend with the multicast that no other build has, on the fake
# driver. Never on a GPU: the driver that is found first is the fake one. Sourced by
# tests/stages.sh.

stage_multicast() {
    made gcc || return
    if ! grep -q "^CUDA_INCLUDE_DIR:PATH=/" build-gcc/CMakeCache.txt; then
        skip multicast "no CUDA headers on this machine"
        return
    fi
    build_target=multicast_check check "build build-multicast" build_in build-multicast \
        -DCMAKE_C_COMPILER=gcc -DSYMMEM_CUDA_MULTICAST=ON \
        -DSYMMEM_CUDA_FATBIN="$root/build-gcc/backend_cuda/kernels.fatbin" || return
    check "multicast's conditions" ctest --test-dir build-multicast --no-tests=error \
        --output-on-failure -R 'fake_cuda\.multicast_(is_on|absent)'
    if ! grep -q "^NVCC:FILEPATH=/" build-multicast/CMakeCache.txt; then
        skip "multicast on the fake driver" "no nvcc on this machine"
        return
    fi
    # Products by the plain kernel: a real cuBLASLt would not bear the fake driver.
    local ranks
    for ranks in 2 3; do
        check "multicast, $ranks ranks" env LD_LIBRARY_PATH="$root/build-multicast/fakes" \
            SYMMEM_MULTICAST=1 NCCL_NVLS_ENABLE=1 SYMMEM_CUDA_BLAS=0 timeout -k 15 "$run_limit" \
            build-gcc/bin/symmem-conformance --no-large --no-color --keep-ranks --ranks "$ranks" \
            --backend "$root/build-multicast/lib/libsymmem_backend_cuda.so" \
            --filter "multicast.*,mmem.*,test_multimem*,test_low_contention_all_gather_ce*"
    done
}
