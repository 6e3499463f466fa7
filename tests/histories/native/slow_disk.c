/* A slow disk for one process, by LD_PRELOAD: with the file $HISTORIES_DISK.slow each sync takes
 * 300 ms longer, and with $HISTORIES_DISK.stalled none ends. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int exists(const char *ending) {
    char path[4096];
    const char *prefix = getenv("HISTORIES_DISK");
    if (prefix == NULL) return 0;
    snprintf(path, sizeof path, "%s.%s", prefix, ending);
    return access(path, F_OK) == 0;
}

static int delayed(const char *name, int file) {
    if (exists("slow")) usleep(300 * 1000);
    while (exists("stalled")) usleep(10 * 1000);
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    return real(file);
}

int fsync(int file) { return delayed("fsync", file); }
int fdatasync(int file) { return delayed("fdatasync", file); }
