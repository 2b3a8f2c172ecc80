/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A /dev/shm of the run's own. Who made a name there cannot be found out afterwards; where no other
 * process can make one, whatever is left is a rank's. It takes a mount namespace: with root's
 * rights, or in a user namespace in which the user stays who it is and gets no rights beyond.
 *
 * In it lies another one for the cases' directories, unless TMPDIR says where they shall be: the
 * stores' files are made and renamed so often that a disk's file system takes a fifth of all time.
 */
#include "runner.h"

#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static const char shm_directory[] = "/dev/shm";
static const char scratch_directory[] = "/dev/shm/symmem-scratch";

static bool write_text(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool written = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return written;
}

/* This process's ids are mapped to themselves. */
static bool enter_user_namespace(void) {
    char user[64], group[64];
    snprintf(user, sizeof(user), "%u %u 1", (unsigned)geteuid(), (unsigned)geteuid());
    snprintf(group, sizeof(group), "%u %u 1", (unsigned)getegid(), (unsigned)getegid());
    return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && write_text("/proc/self/uid_map", user) &&
           write_text("/proc/self/setgroups", "deny") && write_text("/proc/self/gid_map", group);
}

/* As small as the one that it hides: what does not fit there must not fit here. */
static bool mount_shm(void) {
    struct statvfs hidden;
    char options[96] = "mode=1777";
    if (statvfs(shm_directory, &hidden) != 0)
        return false;
    if (hidden.f_blocks > 0)
        snprintf(options, sizeof(options), "mode=1777,size=%llu",
                 (unsigned long long)hidden.f_bavail * hidden.f_frsize);
    /* In a changed root this fails, and so it should: there the kernel would no longer give the
     * program's own path. */
    return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("tmpfs", shm_directory, "tmpfs", MS_NOSUID | MS_NODEV, options) == 0;
}

/* Of its own, so that nothing of what it holds counts against the size of /dev/shm. */
static void mount_scratch(void) {
    const char options[] = "mode=0700,size=512m";
    const char *chosen = getenv("TMPDIR");
    if ((chosen == NULL || strcmp(chosen, scratch_directory) == 0) &&
        mkdir(scratch_directory, 0700) == 0 &&
        mount("tmpfs", scratch_directory, "tmpfs", MS_NOSUID | MS_NODEV, options) != 0 &&
        chosen == NULL)
        rmdir(scratch_directory);
}

/* The rights that a user namespace gives would hide missing permission checks. */
static bool drop_rights(void) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    struct __user_cap_data_struct none[2];
    memset(none, 0, sizeof(none));
    return syscall(SYS_capset, &header, none) == 0;
}

static bool enter(bool root) {
    if (!(root ? unshare(CLONE_NEWNS) == 0 : enter_user_namespace()) || !mount_shm())
        return false;
    mount_scratch();
    return root || drop_rights();
}

/* Tried in a child first, for half of it done could not be undone. */
static bool is_permitted(bool root) {
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(enter(root) ? 0 : 1);
    if (pid < 0)
        return false;
    while (waitpid(pid, &status, 0) != pid)
        continue;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Whether the path leads there, through links or not. */
static bool lies_there(const char *path) {
    char real[PATH_MAX], there[PATH_MAX];
    if (path == NULL || realpath(path, real) == NULL || realpath(shm_directory, there) == NULL)
        return false;
    size_t length = strlen(there);
    return strncmp(real, there, length) == 0 && (real[length] == '/' || real[length] == '\0');
}

/* What the run needs and would no longer find; NULL: nothing. */
static const char *needed_there(const char *backend) {
    return lies_there("/proc/self/exe")   ? "the suite"
           : lies_there(backend)          ? "the backend"
           : lies_there(getenv("TMPDIR")) ? "TMPDIR"
           : lies_there(".")              ? "the working directory"
                                          : NULL;
}

bool private_shm_is_permitted(void) {
    return is_permitted(geteuid() == 0);
}

/* The directory for scratch, if it lies there, is the new one's: the environment needs no change.
 * If it could not be mounted it is part of the new /dev/shm. */
bool private_shm_enter_again(void) {
    return enter(geteuid() == 0);
}

bool private_shm_enter(const char *backend) {
    const char *setting = getenv("SYMMEM_PRIVATE_SHM"), *needed = needed_there(backend);
    bool root = geteuid() == 0;
    if (setting != NULL && strcmp(setting, "0") == 0)
        return false;
    if (setting != NULL && strcmp(setting, "own") == 0)
        return true; /* the process that started this has made it private */
    if (needed != NULL) {
        fprintf(stderr,
                "symmem-conformance: %s is in %s, so the run has none of its own: names that are "
                "left there are noticed only where a rank held them\n",
                needed, shm_directory);
        return false;
    }
    if (!is_permitted(root) || !enter(root))
        return false;
    if (getenv("TMPDIR") == NULL && access(scratch_directory, W_OK) == 0)
        setenv("TMPDIR", scratch_directory, 1);
    return true;
}
