/* SPDX-License-Identifier: BSD-3-Clause */
/* Which file is which part. */
#include "merge.h"

const struct page_run *merge_run(const struct merge *merge, int part) {
    return &merge->reader->page->runs[merge->parts[part].run];
}

/* The first file says how many parts there are. */
static bool make_room(struct merge *merge, int parts) {
    merge->count = parts;
    merge->parts = page_keep(merge->reader->page, calloc((size_t)parts, sizeof(merge->parts[0])));
    return merge->parts != NULL;
}

static bool take_file(struct merge *merge, const char *path) {
    struct reader *reader = merge->reader;
    int runs = reader->page->run_count, part = 0, parts = 0;
    const cJSON *tree;
    char rest;
    if (!read_any(reader, path))
        return false;
    if (reader->page->run_count == runs)
        return read_problem(reader, path, "not the results of a run");
    tree = reader->trees[reader->tree_count - 1];
    if (sscanf(json_text(tree, "part"), "%4d/%4d%c", &part, &parts, &rest) != 2 || part < 1 ||
        part > parts)
        return read_problem(reader, path, "no part of a run: it was made without --part");
    if (merge->parts == NULL && !make_room(merge, parts))
        return read_problem(reader, path, "no memory");
    if (parts != merge->count)
        return read_problem(reader, path, "part %d/%d, where others are of %d parts", part, parts,
                            merge->count);
    if (merge->parts[part - 1].tree != NULL)
        return read_problem(reader, path, "part %d/%d, as %s is", part, parts,
                            merge->parts[part - 1].path);
    merge->parts[part - 1] = (struct merge_part){path, tree, runs};
    return true;
}

static bool take_files(struct merge *merge, char *const files[], int count) {
    bool good = true;
    for (int i = 0; i < count; i++)
        good = take_file(merge, files[i]) && good;
    for (int i = 0; good && i < merge->count; i++)
        if (merge->parts[i].tree == NULL)
            good = read_problem(merge->reader, files[0], "part %d/%d is missing beside it", i + 1,
                                merge->count);
    return good;
}

static bool write_whole(const struct merge *merge, const struct page_run *whole,
                        const char *output) {
    FILE *out = fopen(output, "we");
    bool good;
    if (out == NULL)
        return read_problem(merge->reader, output, "%s", strerror(errno));
    page_write_json(whole, out);
    good = ferror(out) == 0;
    good = fclose(out) == 0 && good;
    return good || read_problem(merge->reader, output, "could not be written");
}

bool merge_files(struct reader *reader, char *const files[], int count, const char *output) {
    struct merge merge = {.reader = reader};
    const struct page_run *whole;
    if (!take_files(&merge, files, count) || !merge_check(&merge))
        return false;
    whole = merge_whole(&merge);
    if (whole == NULL || !write_whole(&merge, whole, output))
        return false;
    merge_tell(whole, stdout);
    return fflush(stdout) == 0 || read_problem(reader, output, "no standard output");
}
