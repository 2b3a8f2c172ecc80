/* SPDX-License-Identifier: BSD-3-Clause */
/* The runner with ranks that a foreign launcher starts. */
#include "runner_run.h"

#include <dirent.h>
#include <limits.h>
#include <signal.h>

static char folder[] = "/tmp/symmem-launcher-XXXXXX";

/* A launcher: `sh FOLDER/NAME 'RANKS' %n`, which starts those ranks, or all if there are none. */
static void write_launcher(const char *name, const char *end) {
    char path[64];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    CU_ASSERT_FATAL(file != NULL);
    fprintf(file,
            "ranks=${1:-$(seq 0 $(($2 - 1)))} WORLD_SIZE=%s\nshift 2\nexport WORLD_SIZE\n"
            "for RANK in $ranks; do export RANK; \"$@\" & pids=\"$pids $!\"; done\n%s\n",
            strcmp(name, "larger") == 0 ? "9" : "$2", end);
    CU_ASSERT_EQUAL(fclose(file), 0);
}

/* Where the launchers lie, and the directories of the cases. */
static void prepare(void) {
    static bool prepared;
    if (prepared)
        return;
    prepared = true;
    CU_ASSERT_FATAL(mkdtemp(folder) != NULL);
    CU_ASSERT_EQUAL(setenv("TMPDIR", folder, 1), 0);
    write_launcher("good", "wait");
    write_launcher("larger", "wait");
    write_launcher("kills", "sleep 1; kill -9 $pids; wait");
    write_launcher("fails", "wait; exit 3");
    write_launcher("stays", "wait; sleep 100");
}

int unit_teardown(void) {
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

/* The exit status of a run whose ranks that launcher starts. */
static int launch(const char *name, const char *ranks, const char *options) {
    prepare();
    return run("--backend fake --launcher \"sh %s/%s '%s' %%n\" %s 2>&1", folder, name, ranks,
               options);
}

#define LAUNCH_SAYS(status, name, ranks, options, ...)                                             \
    do {                                                                                           \
        CU_ASSERT_EQUAL(launch(name, ranks, options), status);                                     \
        CU_ASSERT(says_all((const char *const[]){__VA_ARGS__, NULL}));                             \
    } while (0)

TEST("ranks of a launcher pass what ranks of the runner pass") {
    char first[200];
    CU_ASSERT_EQUAL(run("--backend fake --filter 'good.*'"), 0);
    const char *end = strrchr(output, '\n');
    CU_ASSERT_FATAL(end != NULL);
    while (end > output && end[-1] != '\n')
        end--;
    snprintf(first, sizeof(first), "%.150s", end);
    LAUNCH_SAYS(0, "good", "", "--filter 'good.*'", first);
    LAUNCH_SAYS(0, "good", "", "--filter 'good.*' --jobs 3", first);
    LAUNCH_SAYS(0, "good", "3 1 2 0", "--filter good.passes",
                LAST "1 passed, 0 failed, 0 skipped\n");
}

TEST("what does not go with a launcher") {
    RUN_SAYS(1, "--backend fake --launcher 'mpirun -n 4' 2>&1", "--launcher wants %n");
    RUN_SAYS(1, "--backend fake --launcher 'mpirun -n %%n' --rank-mode thread 2>&1",
             "--launcher and --rank-mode thread exclude each other");
    RUN_SAYS(1, "--backend fake --launcher 'mpirun -n %%n' --keep-ranks 2>&1",
             "--launcher and --keep-ranks exclude each other");
}

TEST("a launcher that is not there, or ends at once") {
    RUN_SAYS(1, "--backend fake --launcher '/nowhere/mpirun -n %%n' 2>&1", "/nowhere/mpirun",
             "the launcher ended with status 127, and ranks 0-3 did not come",
             LAST "0 passed, 1 failed, 0 skipped\n");
    RUN_SAYS(1, "--backend fake --launcher 'true %%n' 2>&1",
             "the launcher ended with status 0, and ranks 0-3 did not come");
    RUN_SAYS(1, "--backend fake --launcher 'kill -9 $$ #%%n' 2>&1",
             "the launcher was ended by signal 9 (Killed), and ranks 0-3 did not come");
}

TEST("a launcher that starts other ranks than it is to") {
    LAUNCH_SAYS(1, "good", "0 2", "--timeout 1",
                "ranks 1,3 of the launcher did not come within 1.0 s");
    LAUNCH_SAYS(1, "good", "0 1 2 3 1", "", "the launcher starts rank 1 twice");
    LAUNCH_SAYS(1, "good", "0 1 2 3 4", "", "the launcher starts rank 4, asked for 4 ranks");
    LAUNCH_SAYS(1, "larger", "0 1 2 3", "", "the launcher starts a world of 9 ranks, asked for 4");
    LAUNCH_SAYS(1, "good", "0 1 2 3", "--filter good.capped_ranks", "asked for 2 ranks",
                "--launcher 'sh /", NOT "left behind");
    RUN_SAYS(1, "--backend fake --launcher 'env A=%%n' 2>&1",
             "tells the processes that it starts no rank");
}

/* As the launcher is called, it prints what it was given. */
TEST("%n is the number of ranks") {
    RUN_SAYS(1, "--backend fake --ranks 3 --launcher 'printf \"<%%n>\" #' 2>&1", "<3>");
}

TEST("a rank of a launcher that dies") {
    LAUNCH_SAYS(1, "good", "0 1 2 3", "--filter bad.is_killed", "rank 3: killed by signal 9");
    LAUNCH_SAYS(1, "good", "0 1 2 3", "--filter bad.crashes", "rank 3: killed by signal 11");
    LAUNCH_SAYS(1, "good", "0 1 2 3", "--filter bad.leaves_by_exit",
                "rank 3: left the test with exit status 0");
    LAUNCH_SAYS(1, "good", "0 1 2 3", "--filter bad.leaks_process", "leak: 4 process(es)");
    LAUNCH_SAYS(1, "good", "0 1 2 3", "--filter bad.fails", "rank 3: a message with");
}

TEST("a rank of a launcher that hangs") {
    LAUNCH_SAYS(1, "good", "0 1 2 3", "--filter bad.hangs", "rank 3: hang: no end within 3.0 s",
                "last seen: rank 3: body, checkpoint \"round 7\"");
    LAUNCH_SAYS(1, "good", "0 1 2 3", "--filter bad.hangs_hard", "hang: no end within 3.0 s",
                "last seen: rank 3: body, checkpoint \"round 7\"");
}

TEST("a launcher that ends its ranks") {
    LAUNCH_SAYS(1, "kills", "0 1 2 3", "--filter bad.hangs", "ranks 0-3: ended by its launcher");
}

TEST("a launcher that fails in the end, or does not end") {
    LAUNCH_SAYS(1, "fails", "0 1 2 3", "--filter good.passes",
                "the launcher ended with status 3, though all ranks ended well");
    CU_ASSERT_EQUAL(setenv("SYMMEM_TIMEOUT_SCALE", "0.1", 1), 0);
    LAUNCH_SAYS(1, "stays", "0 1 2 3", "--filter good.passes",
                "the launcher did not end within 2.0 s of its ranks");
    CU_ASSERT_EQUAL(unsetenv("SYMMEM_TIMEOUT_SCALE"), 0);
}

/* Processes with the folder's name among their arguments, as all have that a launch starts. */
static int count_processes(void) {
    DIR *processes = opendir("/proc");
    const struct dirent *entry;
    int count = 0;
    while (processes != NULL && (entry = readdir(processes)) != NULL) {
        char path[300], arguments[4096];
        snprintf(path, sizeof(path), "/proc/%s/cmdline", entry->d_name);
        FILE *file = strtol(entry->d_name, NULL, 10) < 2 ? NULL : fopen(path, "re");
        size_t length = file == NULL ? 0 : fread(arguments, 1, sizeof(arguments) - 1, file);
        if (file != NULL)
            fclose(file);
        arguments[length] = '\0';
        for (size_t i = 0; i < length; i++)
            arguments[i] = arguments[i] == '\0' ? ' ' : arguments[i];
        count += strstr(arguments, folder) != NULL;
    }
    if (processes != NULL)
        closedir(processes);
    return count;
}

static bool becomes(int wanted_least, int wanted_most) {
    for (int i = 0; i < 1000; i++) {
        int count = count_processes();
        if (count >= wanted_least && count <= wanted_most)
            return true;
        usleep(10000);
    }
    return false;
}

/* Of all the tests before. */
TEST("nothing is left of all the launches") {
    DIR *directory = opendir(folder);
    const struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL)
        CU_ASSERT(strncmp(entry->d_name, "symmem-conformance-", 19) != 0);
    if (directory != NULL)
        closedir(directory);
    CU_ASSERT(becomes(0, 0));
}

/* Whatever becomes of the runner: no process stays. */
TEST("nothing outlives a runner that is killed") {
    char launcher[128];
    prepare();
    snprintf(launcher, sizeof(launcher), "sh %s/good '0 1 2 3' %%n", folder);
    pid_t pid = fork();
    CU_ASSERT_FATAL(pid >= 0);
    if (pid == 0) {
        freopen("/dev/null", "w", stdout);
        freopen("/dev/null", "w", stderr);
        execl(program, program, "--backend", "fake", "--filter", "bad.hangs_hard", "--jobs", "1",
              "--timeout", "50", "--launcher", launcher, (char *)NULL);
        _exit(1);
    }
    /* The runner, the launcher, the starters and their ranks. */
    CU_ASSERT(becomes(1 + 1 + 4 + 4, 100));
    kill(pid, SIGKILL);
    CU_ASSERT_EQUAL(waitpid(pid, NULL, 0), pid);
    CU_ASSERT(becomes(0, 0));
}
