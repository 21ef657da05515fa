/*
** Stands before sqlite3_open, for suites of tests that make their own databases: a new file below $FOREIGN_DIRECTORY is put
** into WAL mode when it is opened first and, where $FOREIGN_STANDFAST names the command line of an instance, protected. To be
** preloaded before libstandfast_preload.so, if that is to be there, and before SQLite itself.
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
typedef struct sqlite3 sqlite3;

enum { READWRITE = 2, CREATE = 4, IS_URI = 0x40, MEMORY = 0x80 };

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

/* Runs `standfast WORD PATH` without our own preloads. */
static void standfast(const char *word, const char *path) {
  const char *program = getenv("FOREIGN_STANDFAST");
  if (!program) return;
  char *arguments[] = {(char *)program, (char *)word, "-D", getenv("FOREIGN_INSTANCE"), (char *)path, NULL};
  char *environment[64];
  int count = 0;
  for (char **entry = environ; *entry && count < 63; entry++)
    if (strncmp(*entry, "LD_PRELOAD=", 11) != 0) environment[count++] = *entry;
  environment[count] = NULL;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  /* Suites may check what is written to their own descriptors. */
  const char *log = getenv("FOREIGN_LOG");
  posix_spawn_file_actions_addopen(&actions, 1, log ? log : "/dev/null", 02001 | 0100, 0644);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t pid;
  if (posix_spawn(&pid, program, &actions, NULL, arguments, environment) == 0) {
    /* A process of the suite that ends just now interrupts the waiting. */
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {}
  }
  posix_spawn_file_actions_destroy(&actions);
}

/* The absolute path of a new database that is to be prepared; 0 when it is none. */
static int is_new(const char *name, int flags, char *path) {
  const char *directory = getenv("FOREIGN_DIRECTORY");
  char file[2 * PATH_MAX], decoded[PATH_MAX];
  if (!directory || !name || !*name || *name == ':' || (flags & MEMORY) || !(flags & CREATE)) return 0;
  if (strncmp(name, "file:", 5) == 0 && (flags & IS_URI)) {
    char *to = decoded;
    for (name += 5; *name && *name != '?' && *name != '#' && to < decoded + sizeof decoded - 1; to++) {
      unsigned int byte;
      int is_coded = *name == '%' && sscanf(name + 1, "%2x", &byte) == 1;
      *to = is_coded ? (char)byte : *name;
      name += is_coded ? 3 : 1;
    }
    *to = 0;
    if (*name == '?') return 0;
    name = decoded;
  }
  /* A file that is not there any more is known to the instance by its plain path. */
  while (strncmp(name, "./", 2) == 0) name += 2;
  if (*name == '/') snprintf(file, sizeof file, "%s", name);
  else {
    char here[PATH_MAX];
    if (!getcwd(here, sizeof here)) return 0;
    snprintf(file, sizeof file, "%s/%s", here, name);
  }
  if (strncmp(file, directory, strlen(directory)) != 0) return 0;
  struct stat status;
  if (stat(file, &status) == 0 && status.st_size > 0) return 0;
  strcpy(path, file);
  return 1;
}

static void prepare(const char *name, int flags) {
  char path[2 * PATH_MAX];
  int (*open)(const char *, sqlite3 **, int, const char *) = next("sqlite3_open_v2");
  int (*exec)(sqlite3 *, const char *, void *, void *, char **) = next("sqlite3_exec");
  int (*close)(sqlite3 *) = next("sqlite3_close");
  sqlite3 *connection = NULL;
  if (!open || !exec || !close || !is_new(name, flags, path)) return;
  /* What was at this path before was removed without a word. */
  standfast("unprotect", path);
  int made = open(path, &connection, READWRITE | CREATE, NULL) == 0
             && exec(connection, "PRAGMA journal_mode=WAL", NULL, NULL, NULL) == 0;
  close(connection);
  if (made) standfast("protect", path);
}

int sqlite3_open_v2(const char *name, sqlite3 **connection, int flags, const char *vfs) {
  int (*open)(const char *, sqlite3 **, int, const char *) = next("sqlite3_open_v2");
  if (!vfs) prepare(name, flags);
  return open ? open(name, connection, flags, vfs) : 14;
}

int sqlite3_open(const char *name, sqlite3 **connection) {
  int (*open)(const char *, sqlite3 **) = next("sqlite3_open");
  prepare(name, READWRITE | CREATE);
  return open ? open(name, connection) : 14;
}
