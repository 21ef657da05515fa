/* Preloaded by network_clock.rs: the wall clock is right, an hour fast and an hour slow in turns of 400 ms. With
   STEPPING=monotonic it is the monotonic clock that steps, by an hour and once, a second after the program has begun:
   what a program then says proves that it hears its time here. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long begun_ms;
static int of_monotonic;

static long now_ms(void) {
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

__attribute__((constructor)) static void begin(void) {
    const char *which = getenv("STEPPING");
    begun_ms = now_ms();
    of_monotonic = which != NULL && strcmp(which, "monotonic") == 0;
}

static long wall_step(void) {
    static const long steps[] = {0, 3600, -3600};
    return of_monotonic ? 0 : steps[now_ms() / 400 % 3];
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    int done = (int)syscall(SYS_clock_gettime, clock, out);
    if (done == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        out->tv_sec += wall_step();
    if (done == 0 && clock == CLOCK_MONOTONIC && of_monotonic && now_ms() - begun_ms >= 1000)
        out->tv_sec += 3600;
    return done;
}

#include "../../../verify/testkit/preload/wall_clock.h"
