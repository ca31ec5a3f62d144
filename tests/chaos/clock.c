/* A wall clock that is off by CLOCK_OFFSET_SECONDS, for a process that preloads this library.
 *
 * Monotonic time is left alone, as it is when a machine's clock is set wrong. librdkafka waits until a time of the wall clock,
 * in C's own cnd_timedwait: such waits are put back by the same offset. (faketime does not know this call: a Kafka client under
 * it hangs.)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static long offset;

__attribute__((constructor)) static void begin(void) {
    const char *said = getenv("CLOCK_OFFSET_SECONDS");
    offset = said ? atol(said) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += offset;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int failed = (int)syscall(SYS_gettimeofday, now, zone);
    if (!failed) now->tv_sec += offset;
    return failed;
}

time_t time(time_t *told) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (told) *told = now.tv_sec;
    return now.tv_sec;
}

int cnd_timedwait(cnd_t *condition, mtx_t *mutex, const struct timespec *until) {
    static int (*real)(cnd_t *, mtx_t *, const struct timespec *);
    struct timespec put_back = {until->tv_sec - offset, until->tv_nsec};
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "cnd_timedwait");
    return real(condition, mutex, &put_back);
}
