/* SPDX-License-Identifier: BSD-3-Clause */
#include "evil_store.h"

#include "bootstrap/exchange.h"

#define CALLS_MAX 600u
#define RAW_MAX 2048u
#define EXTRA_MAX 96u

/* --- keys ------------------------------------------------------------------------------- */

typedef enum key_kind { KEY_JOIN, KEY_IDENTITY, KEY_PART, KEY_ALL, KEY_READ, KEY_WORD } key_kind;

typedef struct key {
    key_kind kind;
    int32_t rank;
    uint64_t id; /* of an exchange */
} key;

/* An exchange's key ends with its number in 16 digits, a count, and a name, which is at `name`. */
static const char *find_id(const char *text, const char *name) {
    const char *before = name;
    for (int slashes = 0; slashes < 2 && before > text; slashes += *before == '/')
        before--;
    const char *id = before + 1;
    const bool is_id = strspn(id, "0123456789abcdef") == 16 && id[16] == '/' &&
                       id + 17 + strspn(id + 17, "0123456789") == name;
    return is_id ? id : NULL;
}

/* Any other key is that of a word by which a rank tells of itself: of its end, of what it lacks. */
static key parse_key(const char *text) {
    key found = {.kind = KEY_WORD};
    const char *name = strrchr(text, '/');
    FUZZ_CHECK(name != NULL);
    found.rank = (int32_t)strtol(name + 1, NULL, 10);
    if (strstr(text, "/j/") != NULL && strchr(strstr(text, "/j/") + 3, '/') == NULL) {
        found.kind = KEY_JOIN;
        return found;
    }
    if (strstr(text, "/id/") != NULL) {
        found.kind = KEY_IDENTITY;
        return found;
    }
    const char *id = find_id(text, name);
    if (id == NULL)
        return found;
    found.id = strtoull(id, NULL, 16);
    if (strcmp(name, "/all") == 0)
        found.kind = KEY_ALL;
    else if (strcmp(name, "/d") == 0)
        found.kind = KEY_READ;
    else
        found.kind = KEY_PART;
    return found;
}

/* --- honest values ---------------------------------------------------------------------- */

void evil_join(const evil_store *evil, int32_t rank, sm_join *join_p) {
    *join_p = evil->join;
    join_p->nonce[0] = (uint8_t)(join_p->nonce[0] ^ (unsigned)(rank + 1));
    if (evil->address_bytes != 0) {
        memcpy(join_p->address, evil->address, sizeof(join_p->address));
        join_p->address_bytes = evil->address_bytes;
    }
}

static void vary(const evil_store *evil, int32_t rank, unsigned char *payload, size_t bytes) {
    if (evil->vary != NULL && rank != evil->rank)
        evil->vary(evil, rank, payload, bytes, evil->arg);
}

/* What all ranks would combine to if all gave what the real one did. */
static size_t honest_all(const evil_store *evil, unsigned char **value_p) {
    sm_part part;
    size_t count = (size_t)evil->world_size;
    memcpy(&part, evil->part, sizeof(part));
    const unsigned char *payload = evil->part + sizeof(part);
    size_t bytes = evil->part_bytes - sizeof(part);
    size_t head_bytes = sizeof(sm_all_head) + count * sizeof(sm_summary);
    sm_all_head head = {.magic = 0x204c4c41u, .failed_rank = -1};
    if ((part.flags & SM_PART_FAILED) != 0) {
        head.failed_rank = evil->rank;
        *value_p = malloc(sizeof(head) + bytes);
        FUZZ_CHECK(*value_p != NULL);
        memcpy(*value_p, &head, sizeof(head));
        memcpy(*value_p + sizeof(head), payload, bytes);
        return sizeof(head) + bytes;
    }
    bool inside = part.bytes == bytes && head_bytes + count * bytes <= SYMMEM_STORE_VALUE_MAX;
    size_t total = head_bytes + (inside ? count * bytes : 0);
    unsigned char *value = malloc(total);
    FUZZ_CHECK(value != NULL);
    memcpy(value, &head, sizeof(head));
    for (size_t rank = 0; rank < count; rank++) {
        sm_summary summary = {.bytes = part.bytes, .kind = part.kind};
        memcpy(value + sizeof(head) + rank * sizeof(summary), &summary, sizeof(summary));
        if (inside && bytes != 0) {
            memcpy(value + head_bytes + rank * bytes, payload, bytes);
            vary(evil, (int32_t)rank, value + head_bytes + rank * bytes, bytes);
        }
    }
    *value_p = value;
    return total;
}

static size_t copy_of(const void *bytes, size_t count, unsigned char **value_p) {
    *value_p = malloc(count > 0 ? count : 1);
    FUZZ_CHECK(*value_p != NULL);
    memcpy(*value_p, bytes, count);
    return count;
}

static size_t honest_part(const evil_store *evil, int32_t rank, unsigned char **value_p) {
    size_t bytes = copy_of(evil->part, evil->part_bytes, value_p);
    sm_part part;
    memcpy(&part, *value_p, sizeof(part));
    if (part.flags == 0)
        vary(evil, rank, *value_p + sizeof(part), bytes - sizeof(part));
    return bytes;
}

/* 0 bytes: there is no such value. */
static size_t honest(const evil_store *evil, const key *asked, unsigned char **value_p) {
    sm_join join;
    evil_join(evil, asked->rank, &join);
    *value_p = NULL;
    switch (asked->kind) {
    case KEY_JOIN:
        return evil->joined ? copy_of(&join, sizeof(join), value_p) : 0;
    case KEY_IDENTITY:
        return evil->joined ? copy_of(&join.identity, sizeof(join.identity), value_p) : 0;
    case KEY_PART:
        return evil->part != NULL ? honest_part(evil, asked->rank, value_p) : 0;
    case KEY_ALL:
        return evil->part != NULL ? honest_all(evil, value_p) : 0;
    default:
        return 0;
    }
}

/* --- other values ------------------------------------------------------------------------- */

/* A peer's word: like the latest one of the real rank, or any bytes. */
static size_t any_word(evil_store *evil, const key *asked, unsigned char **value_p) {
    unsigned char raw[RAW_MAX];
    size_t bytes = fuzz_u16(evil->in) % RAW_MAX;
    if (evil->word == NULL || bytes != 0) {
        fuzz_take(evil->in, raw, bytes);
        return copy_of(raw, bytes, value_p);
    }
    bytes = copy_of(evil->word, evil->word_bytes, value_p);
    /* Behind a mark many words name their rank. */
    if (bytes >= 2 * sizeof(asked->rank))
        memcpy(*value_p + sizeof(asked->rank), &asked->rank, sizeof(asked->rank));
    fuzz_spoil(evil->in, *value_p, bytes);
    return bytes;
}

/* A rank that gave up, or one that has failed, in its own contribution or in the result of all. */
static size_t special(evil_store *evil, const key *asked, unsigned char **value_p) {
    if (asked->kind == KEY_ALL) {
        sm_failed_all all = {.head = {.magic = 0x204c4c41u}, .verdict = {.status = SYMMEM_SYSTEM}};
        all.head.failed_rank = (int32_t)fuzz_below(evil->in, (uint32_t)evil->world_size);
        fuzz_spoil(evil->in, &all, sizeof(all));
        return copy_of(&all, sizeof(all), value_p);
    }
    sm_failed_part part = {.part = {.magic = SM_PART_MAGIC, .flags = SM_PART_GAVE_UP},
                           .verdict = {.status = SYMMEM_SYSTEM}};
    if ((fuzz_u8(evil->in) & 1) == 0)
        return copy_of(&part.part, sizeof(part.part), value_p);
    part.part.flags = SM_PART_FAILED;
    fuzz_spoil(evil->in, &part, sizeof(part));
    return copy_of(&part, sizeof(part), value_p);
}

static size_t resized(evil_store *evil, size_t bytes, unsigned char **value_p, bool longer) {
    size_t wanted = longer ? bytes + fuzz_below(evil->in, EXTRA_MAX) : fuzz_u16(evil->in);
    if (!longer && wanted > bytes)
        wanted = bytes;
    unsigned char *value = realloc(*value_p, wanted + 1);
    FUZZ_CHECK(value != NULL);
    if (wanted > bytes)
        fuzz_take(evil->in, value + bytes, wanted - bytes);
    *value_p = value;
    return wanted;
}

static symmem_status answer(evil_store *evil, const key *asked, unsigned char **value_p,
                            size_t *bytes_p) {
    uint8_t form = fuzz_u8(evil->in);
    unsigned char raw[RAW_MAX];
    size_t bytes = honest(evil, asked, value_p);
    if (asked->kind == KEY_WORD && form % 8 == 3) {
        *bytes_p = any_word(evil, asked, value_p);
        return SYMMEM_OK;
    }
    if (bytes == 0 || form % 8 == 1)
        return SYMMEM_NOT_FOUND;
    if (form % 8 == 2)
        return SYMMEM_SYSTEM;
    if (form % 8 == 3) {
        free(*value_p);
        bytes = fuzz_u16(evil->in) % RAW_MAX;
        fuzz_take(evil->in, raw, bytes);
        bytes = copy_of(raw, bytes, value_p);
    } else if (form % 8 == 4 || form % 8 == 5) {
        bytes = resized(evil, bytes, value_p, form % 8 == 5);
    } else if (form % 8 == 6) {
        free(*value_p);
        bytes = special(evil, asked, value_p);
    } else if (form != 0) {
        fuzz_spoil(evil->in, *value_p, bytes);
    }
    *bytes_p = bytes;
    return SYMMEM_OK;
}

/* --- the table --------------------------------------------------------------------------- */

static void keep(unsigned char **kept_p, size_t *kept_bytes_p, const void *value, size_t bytes) {
    free(*kept_p);
    *kept_bytes_p = copy_of(value, bytes, kept_p);
}

static bool spent(evil_store *evil) {
    if (evil->calls_left > 0)
        evil->calls_left--;
    return evil->calls_left == 0;
}

static symmem_status evil_set(void *self, const char *text, const void *value, size_t bytes,
                              uint32_t timeout_ms) {
    evil_store *evil = self;
    key set = parse_key(text);
    if (spent(evil) || fuzz_u8(evil->in) == 0xff)
        return SYMMEM_SYSTEM;
    if (set.kind == KEY_JOIN && bytes == sizeof(evil->join)) {
        memcpy(&evil->join, value, bytes);
        evil->joined = true;
    } else if (set.kind == KEY_PART && set.rank == evil->rank) {
        keep(&evil->part, &evil->part_bytes, value, bytes);
        evil->id = set.id;
        if (evil->given != NULL)
            evil->given(evil, evil->arg);
    } else if (set.kind == KEY_ALL) {
        keep(&evil->all, &evil->all_bytes, value, bytes);
        evil->combined = true;
    } else if (set.kind == KEY_WORD) {
        keep(&evil->word, &evil->word_bytes, value, bytes);
    }
    return SYMMEM_OK;
}

static void remember(evil_store *evil, const key *asked, const void *value, size_t bytes) {
    if (asked->kind == KEY_ALL) {
        keep(&evil->all, &evil->all_bytes, value, bytes);
        evil->combined = false;
    } else if (asked->kind == KEY_PART && asked->rank >= 0 && asked->rank < EVIL_TOLD_MAX) {
        keep(&evil->told[asked->rank].value, &evil->told[asked->rank].bytes, value, bytes);
    }
}

static symmem_status evil_get(void *self, const char *text, void *value, size_t capacity,
                              size_t *bytes_p, uint32_t timeout_ms) {
    evil_store *evil = self;
    key asked = parse_key(text);
    unsigned char *found = NULL;
    size_t bytes = 0;
    if (spent(evil))
        return SYMMEM_SYSTEM;
    symmem_status status = answer(evil, &asked, &found, &bytes);
    if (status == SYMMEM_OK) {
        *bytes_p = bytes;
        if (bytes > capacity)
            status = SYMMEM_OUT_OF_RANGE;
        else if (bytes > 0)
            memcpy(value, found, bytes);
    }
    if (status == SYMMEM_OK)
        remember(evil, &asked, found, bytes);
    free(found);
    return status;
}

static symmem_status evil_wait(void *self, const char *text, uint32_t timeout_ms) {
    evil_store *evil = self;
    if (spent(evil))
        return SYMMEM_SYSTEM;
    uint8_t form = fuzz_u8(evil->in);
    return form == 0xff ? SYMMEM_SYSTEM : form % 4 == 1 ? SYMMEM_TIMEOUT : SYMMEM_OK;
}

static symmem_status evil_add(void *self, const char *text, int64_t delta, int64_t *value_p,
                              uint32_t timeout_ms) {
    evil_store *evil = self;
    if (spent(evil))
        return SYMMEM_SYSTEM;
    uint8_t form = fuzz_u8(evil->in);
    if (form == 0xff)
        return SYMMEM_MISMATCH;
    *value_p = delta;
    if (form % 4 == 1)
        *value_p = evil->world_size;
    else if (form % 4 == 2)
        *value_p = (int64_t)fuzz_u64(evil->in);
    return SYMMEM_OK;
}

static symmem_status evil_remove(void *self, const char *text, uint32_t timeout_ms) {
    evil_store *evil = self;
    return spent(evil) || fuzz_u8(evil->in) == 0xff ? SYMMEM_SYSTEM : SYMMEM_OK;
}

static void evil_close(void *self) {}

symmem_store *evil_store_open(evil_store *evil, fuzz_input *in, int32_t rank, int32_t world_size) {
    static const symmem_store_ops ops = {.size = sizeof(ops),
                                         .set = evil_set,
                                         .get = evil_get,
                                         .wait = evil_wait,
                                         .add = evil_add,
                                         .remove = evil_remove,
                                         .close = evil_close};
    symmem_store *store = NULL;
    *evil = (evil_store){.in = in, .rank = rank, .world_size = world_size, .calls_left = CALLS_MAX};
    FUZZ_CHECK(symmem_store_open_custom(&ops, evil, &store) == SYMMEM_OK);
    return store;
}

void evil_store_close(evil_store *evil, symmem_store *store) {
    symmem_store_close(store);
    free(evil->part);
    free(evil->all);
    free(evil->word);
    for (size_t i = 0; i < EVIL_TOLD_MAX; i++)
        free(evil->told[i].value);
}
