/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the ranks of a case print. It would tear the report apart and is worth reading only beside a
 * verdict, so it goes through a pipe to the controller, which keeps its beginning and its end. A
 * pipe and no file: a rank that prints without end only slows itself down.
 */
#include "runner.h"

#define HEAD_BYTES 8192
#define TAIL_BYTES 8192

struct runner_output {
    int read_fd, write_fd;
    size_t total;
    char head[HEAD_BYTES];
    char tail[TAIL_BYTES]; /* what follows the head, as a ring */
};

struct runner_output *output_open(void) {
    struct runner_output *output = calloc(1, sizeof(*output));
    int fds[2];
    if (output == NULL || pipe2(fds, O_CLOEXEC) != 0) {
        free(output);
        return NULL;
    }
    output->read_fd = fds[0];
    output->write_fd = fds[1];
    fcntl(output->read_fd, F_SETFL, O_NONBLOCK);
    return output;
}

void output_close(struct runner_output *output) {
    if (output == NULL)
        return;
    close(output->read_fd);
    close(output->write_fd);
    free(output);
}

void output_redirect(const struct runner_output *output) {
    if (output == NULL)
        return;
    dup2(output->write_fd, STDERR_FILENO);
    close(output->write_fd);
    close(output->read_fd);
}

int output_descriptor(const struct runner_output *output) {
    return output == NULL ? STDERR_FILENO : output->write_fd;
}

static void keep(struct runner_output *output, const char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++, output->total++)
        if (output->total < HEAD_BYTES)
            output->head[output->total] = bytes[i];
        else
            output->tail[(output->total - HEAD_BYTES) % TAIL_BYTES] = bytes[i];
}

bool output_drain(struct runner_output *output) {
    char bytes[4096];
    bool some = false;
    ssize_t got;
    /* Bounded: who prints faster than this must not keep the watchdog from its work. */
    for (int i = 0; output != NULL && i < 64; i++) {
        got = read(output->read_fd, bytes, sizeof(bytes));
        if (got <= 0)
            break;
        some = true;
        keep(output, bytes, (size_t)got);
    }
    return some;
}

static void put(FILE *out, const char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        fputc(bytes[i] == '\0' ? '?' : bytes[i], out); /* it becomes a C string */
}

char *output_take(struct runner_output *output) {
    char *text = NULL;
    size_t length = 0;
    FILE *memory;
    if (output == NULL)
        return NULL;
    output_drain(output);
    if (output->total == 0 || (memory = open_memstream(&text, &length)) == NULL)
        return NULL;
    put(memory, output->head, output->total < HEAD_BYTES ? output->total : HEAD_BYTES);
    size_t beyond = output->total < HEAD_BYTES ? 0 : output->total - HEAD_BYTES;
    if (beyond > TAIL_BYTES) {
        size_t start = beyond % TAIL_BYTES;
        fprintf(memory, "\n... %zu bytes left out ...\n", beyond - TAIL_BYTES);
        put(memory, output->tail + start, TAIL_BYTES - start);
        put(memory, output->tail, start);
    } else {
        put(memory, output->tail, beyond);
    }
    fclose(memory);
    output->total = 0;
    return text;
}
