/* What libevl exports of itself, for tests on kernels without its core: the same names and shapes, and nothing behind them.
 * INIT is what evl_init answers; LACKS leaves one function out. Shapes: evl/thread-evl.h, uapi/evl/thread.h (ABI level 32). */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct attributes { int policy, priority; long long quantum[2]; };
struct state { struct attributes attributes; unsigned cpu, flags, in_band, switches, calls, remote; unsigned long long time; };

static __thread int attached = -1, in_band = 1;
static __thread unsigned strayed, switched;

int evl_init(void) { return INIT; }

int evl_attach_thread(int flags, const char *format, ...)
{
	char name[64];
	va_list rest;
	if (flags || attached >= 0)
		return -EBUSY;
	va_start(rest, format);
	vsnprintf(name, sizeof(name), format, rest);
	va_end(rest);
	if (strncmp(name, "quietcores:", 11))
		return -EINVAL;
	return attached = 9;
}

int evl_detach_self(void)
{
	if (attached < 0)
		return -EPERM;
	attached = -1;
	return 0;
}

int evl_get_self(void) { return attached < 0 ? -EPERM : attached; }

#ifndef LACKS
int evl_switch_oob(void)
{
	if (attached < 0)
		return -EPERM;
	in_band = 0;
	switched++;
	return 0;
}
#endif

/* Not of libevl: what a fault would do. */
void stray(void)
{
	in_band = 1;
	strayed++;
}

int evl_get_state(int descriptor, struct state *state)
{
	struct state now = { { 1, 85, { 0, 0 } }, 1, in_band ? 0x4080 : 0x4000, strayed, switched, 7, 8, 9 };
	if (descriptor != attached)
		return -EBADF;
	*state = now;
	return 0;
}

int evl_read_clock(int clock, struct timespec *now) { return clock_gettime(-clock, now) ? -errno : 0; }

int evl_sleep_until(int clock, const struct timespec *until)
{
	if (attached < 0)
		return -EPERM;
	return -clock_nanosleep(-clock, TIMER_ABSTIME, until, NULL);
}
