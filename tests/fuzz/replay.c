/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libFuzzer's place in ordinary builds: runs a target once for each file named, and for each file
 * of each folder named. Without an argument it runs the input that stands on standard input.
 */
#include "fuzz.h"

#define INPUT_MAX (1u << 20)
#define INPUT_SECONDS 60u /* an input that takes longer hangs; SIGALRM ends the program */

extern int LLVMFuzzerInitialize(int *argc, char ***argv) __attribute__((weak));

static int run_count;
static uint8_t buffer[INPUT_MAX];

static bool run_stream(FILE *file, const char *name) {
    size_t size = fread(buffer, 1, sizeof(buffer), file);
    if (ferror(file) || !feof(file)) {
        fprintf(stderr, "cannot read %s, or it has more than %u bytes\n", name, INPUT_MAX);
        return false;
    }
    /* An allocation of just that size: a sanitizer sees a target that reads past its input. */
    uint8_t *data = malloc(size > 0 ? size : 1);
    if (data == NULL)
        return false;
    memcpy(data, buffer, size);
    (void)alarm(INPUT_SECONDS);
    (void)LLVMFuzzerTestOneInput(data, size);
    (void)alarm(0);
    free(data);
    run_count++;
    return true;
}

static bool run_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return false;
    }
    fprintf(stderr, "%s\n", path); /* the last one named is the one that failed */
    bool fine = run_stream(file, path);
    fclose(file);
    return fine;
}

static bool run_path(const char *path) {
    DIR *directory = opendir(path);
    if (directory == NULL)
        return run_file(path);
    bool fine = true;
    for (struct dirent *entry; fine && (entry = readdir(directory)) != NULL;) {
        char name[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        fine = run_file(name);
    }
    closedir(directory);
    return fine;
}

int main(int argc, char **argv) {
    bool fine = true;
    if (LLVMFuzzerInitialize != NULL)
        (void)LLVMFuzzerInitialize(&argc, &argv);
    if (argc < 2)
        fine = run_stream(stdin, "standard input");
    for (int i = 1; i < argc && fine; i++)
        fine = run_path(argv[i]);
    printf("%d inputs\n", run_count);
    return fine && run_count > 0 ? 0 : 1;
}
