/* Preloaded by clocks.rs: the wall clock is ahead by as many seconds as the file $STANDFAST_TEST_CLOCK says, 8 bytes, at every
   moment. The monotonic clock is left alone, as `date --set` leaves it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("STANDFAST_TEST_CLOCK");
    int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return;
    void *found = mmap(NULL, sizeof(*ahead), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (found != MAP_FAILED)
        ahead = found;
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    int done = (int)syscall(SYS_clock_gettime, clock, out);
    if (done == 0 && ahead != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        out->tv_sec += *ahead;
    return done;
}

#include "../../../testkit/preload/wall_clock.h"
