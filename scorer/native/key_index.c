/* An index from (space, key) to a row number, with batch look-ups. scorer/tables/key_index.py describes its contract.
 *
 * Open addressing with linear probing. A slot holds half of the key's hash and the row number, so that a probe reads one word
 * and seldom a wrong key. A look-up of many keys runs in stages over PART keys: it prefetches the slots, then the rows, then
 * the keys, because each of them is a cache miss in a large index.
 *
 * Ownership and lifetimes
 * -----------------------
 * The index owns its memory until key_index_free. Functions borrow their arguments for the time of the call. The caller must
 * prevent two calls at the same time, with one exception: key_index_reserve only reads what key_index_rows reads, so that both
 * may run at the same time. key_index_reserve copies memory that would be too small to larger memory, and the next function
 * that changes the index uses the copies. The memory that was used before is freed by the next key_index_reserve, because that
 * takes long. A function that allocates returns false if memory is exhausted; the index is then unchanged, except for keys that
 * were already applied.
 */
#include <stdlib.h>

#include "hash.h"
#include "text.h"

enum { PART = 32, MIN_SLOTS = 64, MIN_ROWS = 64, NO_ROW = -1 };

typedef struct {
    uint64_t at;     /* the position of the key in `keys` */
    uint32_t length; /* of the key; of the space for a key if the row is free */
    int32_t space;
} Row;

typedef struct {
    uint64_t *slots; /* 0 for a free slot, else the low half of the hash, and the row number plus one */
    uint64_t mask;   /* the number of slots minus one */
    Row *rows;
    uint64_t row_room;
    char *keys;      /* each key begins at a multiple of WORD */
    uint64_t key_room;
} Memory;

typedef struct {
    uint64_t seed;
    Memory now, larger, before; /* `larger` and `before` have NULL in place of memory that does not change */
    uint32_t *free;             /* the numbers of the free rows, a stack */
    uint64_t row_count, free_count, free_room;
    uint64_t key_bytes;
    uint64_t wasted;            /* bytes of `keys` that no row uses */
} KeyIndex;

/* The keys of a call. `spaces` is NULL if all keys are in the same space; `nulls` is NULL if no key is missing. */
typedef struct {
    const char *text;
    const int64_t *starts, *ends;
    const uint8_t *nulls;
    const int32_t *spaces;
    int32_t space;
} Keys;

static inline uint64_t rounded(uint64_t length)
{
    return (length + WORD - 1) / WORD * WORD;
}

static inline int32_t space_of(const Keys *keys, int64_t at)
{
    return keys->spaces ? keys->spaces[at] : keys->space;
}

static inline uint64_t hash_of(const KeyIndex *index, const Keys *keys, int64_t at)
{
    uint64_t seed = index->seed + (uint64_t)(uint32_t)space_of(keys, at) * 0x9E3779B97F4A7C15u;
    return text_hash(keys->text + keys->starts[at], keys->text + keys->ends[at], seed);
}

static inline uint64_t slot_value(uint64_t hash, uint64_t row)
{
    return hash << 32 | (row + 1);
}

static inline uint64_t row_of(uint64_t slot)
{
    return (slot & 0xFFFFFFFFu) - 1;
}

/* Return the first slot to probe. The mask is below 2^32, so that the half of the hash in a slot determines it. */
static inline uint64_t first_slot(uint64_t hash, uint64_t mask)
{
    return (hash & 0xFFFFFFFFu) & mask;
}

static inline bool has_key(const KeyIndex *index, uint64_t number, const Keys *keys, int64_t at)
{
    const Row *row = &index->now.rows[number];
    uint64_t length = (uint64_t)(keys->ends[at] - keys->starts[at]);
    return row->length == length && row->space == space_of(keys, at)
           && memcmp(index->now.keys + row->at, keys->text + keys->starts[at], length) == 0;
}

/* Return the slot of a key, or the free slot at which the probe ended. */
static uint64_t find(const KeyIndex *index, const Keys *keys, int64_t at, uint64_t hash)
{
    uint64_t slot = first_slot(hash, index->now.mask);
    for (;; slot = (slot + 1) & index->now.mask) {
        uint64_t value = index->now.slots[slot];
        if (!value || (value >> 32 == (hash & 0xFFFFFFFFu) && has_key(index, row_of(value), keys, at))) {
            return slot;
        }
    }
}

static void insert(uint64_t *slots, uint64_t mask, uint64_t value)
{
    uint64_t slot = (value >> 32) & mask;
    while (slots[slot]) {
        slot = (slot + 1) & mask;
    }
    slots[slot] = value;
}

/* Empty a slot, and move the slots after it that would no longer be found. */
static void erase(KeyIndex *index, uint64_t slot)
{
    uint64_t mask = index->now.mask;
    uint64_t next = slot;
    for (;;) {
        next = (next + 1) & mask;
        uint64_t value = index->now.slots[next];
        if (!value) {
            break;
        }
        uint64_t wanted = (value >> 32) & mask;
        if (((next - wanted) & mask) >= ((next - slot) & mask)) {
            index->now.slots[slot] = value;
            slot = next;
        }
    }
    index->now.slots[slot] = 0;
}

static uint64_t used_rows(const KeyIndex *index)
{
    return index->row_count - index->free_count;
}

static void free_memory(Memory *memory)
{
    free(memory->slots);
    free(memory->rows);
    free(memory->keys);
    memset(memory, 0, sizeof *memory);
}

static bool reserve_slots(KeyIndex *index, uint64_t keys)
{
    uint64_t mask = index->now.mask;
    while (keys * 4 > (mask + 1) * 3) {
        mask = mask * 2 + 1;
    }
    if (mask == index->now.mask || (index->larger.slots && mask <= index->larger.mask)) {
        return true;
    }
    uint64_t *slots = calloc(mask + 1, sizeof *slots);
    if (!slots) {
        return false;
    }
    for (uint64_t slot = 0; slot <= index->now.mask; slot++) {
        if (index->now.slots[slot]) {
            insert(slots, mask, index->now.slots[slot]);
        }
    }
    free(index->larger.slots);
    index->larger.slots = slots;
    index->larger.mask = mask;
    return true;
}

/* Copy `used` bytes to memory for `needed` bytes, and for a quarter more, as the memory of a large table counts. */
static void *larger_copy(const void *items, uint64_t used, uint64_t *room, uint64_t needed, size_t size)
{
    *room = (needed + needed / 4) / size + 1;
    void *copy = malloc(*room * size);
    if (copy && used) {
        memcpy(copy, items, used);
    }
    return copy;
}

/* Make room for `more` further keys of `bytes` bytes in total. */
bool key_index_reserve(KeyIndex *index, int64_t more, int64_t bytes)
{
    free_memory(&index->before);
    uint64_t rows = index->row_count + (uint64_t)more;
    uint64_t text = index->key_bytes + (uint64_t)bytes + (uint64_t)more * WORD;
    Memory *larger = &index->larger;
    if (rows > (larger->rows ? larger->row_room : index->now.row_room)) {
        free(larger->rows);
        uint64_t used = index->row_count * sizeof(Row);
        larger->rows = larger_copy(index->now.rows, used, &larger->row_room, rows * sizeof(Row), sizeof(Row));
        if (!larger->rows) {
            return false;
        }
    }
    if (text > (larger->keys ? larger->key_room : index->now.key_room)) {
        free(larger->keys);
        larger->keys = larger_copy(index->now.keys, index->key_bytes, &larger->key_room, text, 1);
        if (!larger->keys) {
            return false;
        }
    }
    return reserve_slots(index, used_rows(index) + (uint64_t)more);
}

static void use_larger(KeyIndex *index)
{
    Memory *now = &index->now, *larger = &index->larger, *before = &index->before;
    if (larger->slots) {
        free(before->slots);
        before->slots = now->slots;
        now->slots = larger->slots;
        now->mask = larger->mask;
    }
    if (larger->rows) {
        free(before->rows);
        before->rows = now->rows;
        now->rows = larger->rows;
        now->row_room = larger->row_room;
    }
    if (larger->keys) {
        free(before->keys);
        before->keys = now->keys;
        now->keys = larger->keys;
        now->key_room = larger->key_room;
    }
    memset(larger, 0, sizeof *larger);
}

/* Copy the keys of all rows to a new text without gaps. A free row no longer has space for a key. */
static bool compact_keys(KeyIndex *index)
{
    uint64_t room = index->key_bytes - index->wasted + WORD;
    char *keys = malloc(room);
    if (!keys) {
        return false;
    }
    for (uint64_t at = 0; at < index->free_count; at++) {
        index->now.rows[index->free[at]].length = 0;
    }
    uint64_t end = 0;
    for (uint64_t number = 0; number < index->row_count; number++) {
        Row *row = &index->now.rows[number];
        memcpy(keys + end, index->now.keys + row->at, row->length);
        row->at = end;
        end += rounded(row->length);
    }
    free(index->now.keys);
    index->now.keys = keys;
    index->key_bytes = end;
    index->now.key_room = room;
    index->wasted = 0;
    return true;
}

/* Return a row that is not in use, with space for a key of this length. key_index_reserve has made room for both. */
static uint64_t take_row(KeyIndex *index, uint32_t length)
{
    uint64_t number = index->row_count;
    if (index->free_count) {
        number = index->free[--index->free_count];
        if (rounded(index->now.rows[number].length) >= length) {
            index->wasted -= rounded(length); /* the rest of a longer space is still wasted */
            return number;
        }
    } else {
        index->row_count++;
    }
    index->now.rows[number].at = index->key_bytes;
    index->key_bytes += rounded(length);
    return number;
}

/* Put a key, and return its row number. */
static int64_t put(KeyIndex *index, const Keys *keys, int64_t at)
{
    uint64_t hash = hash_of(index, keys, at);
    uint64_t slot = find(index, keys, at, hash);
    if (index->now.slots[slot]) {
        return (int64_t)row_of(index->now.slots[slot]);
    }
    uint32_t length = (uint32_t)(keys->ends[at] - keys->starts[at]);
    uint64_t number = take_row(index, length);
    Row *row = &index->now.rows[number];
    row->length = length;
    row->space = space_of(keys, at);
    memcpy(index->now.keys + row->at, keys->text + keys->starts[at], length);
    index->now.slots[slot] = slot_value(hash, number);
    return (int64_t)number;
}

static bool release_row(KeyIndex *index, uint64_t number)
{
    if (index->free_count == index->free_room) {
        uint64_t room = index->free_room + index->free_room / 4 + MIN_ROWS;
        uint32_t *numbers = realloc(index->free, room * sizeof *numbers);
        if (!numbers) {
            return false;
        }
        index->free = numbers;
        index->free_room = room;
    }
    index->free[index->free_count++] = (uint32_t)number;
    index->wasted += rounded(index->now.rows[number].length);
    return true;
}

static bool remove_key(KeyIndex *index, const Keys *keys, int64_t at, int64_t *number)
{
    uint64_t slot = find(index, keys, at, hash_of(index, keys, at));
    if (!index->now.slots[slot]) {
        *number = NO_ROW;
        return true;
    }
    *number = (int64_t)row_of(index->now.slots[slot]);
    if (!release_row(index, (uint64_t)*number)) {
        return false;
    }
    erase(index, slot);
    return true;
}

static bool compact_if_wasteful(KeyIndex *index)
{
    bool wasteful = index->wasted * 2 > index->key_bytes && index->wasted > 1u << 20;
    return !wasteful || compact_keys(index);
}

KeyIndex *key_index_new(uint64_t seed)
{
    KeyIndex *index = calloc(1, sizeof *index);
    if (!index) {
        return NULL;
    }
    index->seed = seed;
    index->now.mask = MIN_SLOTS - 1;
    index->now.slots = calloc(MIN_SLOTS, sizeof *index->now.slots);
    if (!index->now.slots) {
        free(index);
        return NULL;
    }
    return index;
}

void key_index_free(KeyIndex *index)
{
    free_memory(&index->now);
    free_memory(&index->larger);
    free_memory(&index->before);
    free(index->free);
    free(index);
}

/* Write three numbers: keys, row numbers that were ever assigned, and bytes of memory without the copies of a reservation. */
void key_index_sizes(const KeyIndex *index, int64_t *sizes)
{
    uint64_t slots = index->now.mask + 1;
    sizes[0] = (int64_t)used_rows(index);
    sizes[1] = (int64_t)index->row_count;
    sizes[2] = (int64_t)(slots * sizeof *index->now.slots + index->now.row_room * sizeof *index->now.rows
                         + index->free_room * sizeof *index->free + index->now.key_room);
}

/* Write the row number of each key; NO_ROW for a key that is not in the index, and for a missing key. */
void key_index_rows(const KeyIndex *index, const char *text, const int64_t *starts, const int64_t *ends, const uint8_t *nulls,
                    const int32_t *spaces, int32_t space, int64_t count, int64_t *numbers)
{
    Keys keys = {text, starts, ends, nulls, spaces, space};
    uint64_t hashes[PART];
    for (int64_t begin = 0; begin < count; begin += PART) {
        int64_t part = count - begin < PART ? count - begin : PART;
        for (int64_t at = 0; at < part; at++) {
            hashes[at] = hash_of(index, &keys, begin + at);
            __builtin_prefetch(&index->now.slots[first_slot(hashes[at], index->now.mask)]);
        }
        for (int64_t at = 0; at < part; at++) {
            uint64_t value = index->now.slots[first_slot(hashes[at], index->now.mask)];
            if (value) {
                __builtin_prefetch(&index->now.rows[row_of(value)]);
            }
        }
        for (int64_t at = 0; at < part; at++) {
            uint64_t value = index->now.slots[first_slot(hashes[at], index->now.mask)];
            if (value) {
                __builtin_prefetch(index->now.keys + index->now.rows[row_of(value)].at);
            }
        }
        for (int64_t at = begin; at < begin + part; at++) {
            uint64_t value = nulls && nulls[at] ? 0 : index->now.slots[find(index, &keys, at, hashes[at - begin])];
            numbers[at] = value ? (int64_t)row_of(value) : NO_ROW;
        }
    }
}

/* Put or remove keys, one after another, and write their row numbers; see `KeyIndex.apply` in Python. Return false if memory is
 * exhausted. */
bool key_index_apply(KeyIndex *index, const char *text, const int64_t *starts, const int64_t *ends, const uint8_t *nulls,
                     const uint8_t *removed, const int32_t *spaces, int32_t space, int64_t count, int64_t *numbers)
{
    Keys keys = {text, starts, ends, nulls, spaces, space};
    int64_t bytes = 0;
    for (int64_t at = 0; at < count; at++) {
        bytes += ends[at] - starts[at];
    }
    if (!key_index_reserve(index, count, bytes)) {
        return false;
    }
    use_larger(index);
    for (int64_t at = 0; at < count; at++) {
        if (nulls && nulls[at]) {
            numbers[at] = NO_ROW;
        } else if (removed[at]) {
            if (!remove_key(index, &keys, at, &numbers[at])) {
                return false;
            }
        } else {
            numbers[at] = put(index, &keys, at);
        }
    }
    return compact_if_wasteful(index);
}

/* Remove the keys with these row numbers, each of which is in use. Return false if memory is exhausted. */
bool key_index_remove_rows(KeyIndex *index, const int64_t *numbers, int64_t count)
{
    use_larger(index);
    for (int64_t at = 0; at < count; at++) {
        const Row *row = &index->now.rows[numbers[at]];
        int64_t start = (int64_t)row->at, end = start + (int64_t)row->length, number;
        Keys keys = {index->now.keys, &start, &end, NULL, NULL, row->space};
        if (!remove_key(index, &keys, 0, &number)) {
            return false;
        }
    }
    return compact_if_wasteful(index);
}
