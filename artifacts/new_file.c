/* new_file.c - write a file whole or not at all (see new_file.h). */
#include "artifacts/new_file.h"
#include "artifacts/why.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define failed(f, ...) say_why((f)->why, (f)->why_bytes, __VA_ARGS__)

static bool cannot(const NewFile *f) { return failed(f, "cannot be written: %s", strerror(errno)); }

/* Signals that end a program wait while there is a file of a temporary name: it would be left behind. */
static void hold_signals(NewFile *f)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	if (!f->holds_signals)
		sigprocmask(SIG_BLOCK, &set, &f->mask);
	f->holds_signals = true;
}

bool new_file_is_interrupted(const NewFile *f)
{
	sigset_t pending;
	return f->holds_signals && sigpending(&pending) == 0 && (sigismember(&pending, SIGINT) == 1 ||
		sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGHUP) == 1);
}

static void folder_of(const char *path, char *folder, size_t bytes)
{
	const char *slash = strrchr(path, '/');
	snprintf(folder, bytes, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
}

/* Only a regular file may be replaced; *old is what has the name, its mode 0 if nothing has. */
static bool may_replace(const NewFile *f, struct stat *old)
{
	if (lstat(f->path, old) != 0) {
		*old = (struct stat){0};
		return true;
	}
	if (S_ISREG(old->st_mode))
		return true;
	return failed(f, "not a regular file but %s", S_ISDIR(old->st_mode) ? "a folder" :
		S_ISLNK(old->st_mode) ? "a symbolic link" : S_ISFIFO(old->st_mode) ? "a FIFO" :
		S_ISSOCK(old->st_mode) ? "a socket" : "a device");
}

bool new_file_begin(NewFile *f, const char *path, char *why, size_t why_bytes)
{
	char folder[sizeof f->path];
	struct stat old;
	*f = (NewFile){.fd = -1, .why = why, .why_bytes = why_bytes};
	if (strlen(path) >= sizeof f->path)
		return failed(f, "the path is too long");
	strcpy(f->path, path);
	if (!may_replace(f, &old))
		return false;
	folder_of(path, folder, sizeof folder);
	/* The system takes away what umask says, which no thread can ask for without changing it. */
	f->fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
	if (f->fd < 0) {
		snprintf(f->temporary, sizeof f->temporary, "%s.tmp.%d", path, (int)getpid());
		hold_signals(f);
		unlink(f->temporary);
		f->fd = open(f->temporary, O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR | O_CLOEXEC, old.st_mode ? 0600 : 0666);
	}
	if (f->fd >= 0)
		return true;
	cannot(f);
	f->temporary[0] = 0;
	new_file_abandon(f);
	return false;
}

void new_file_abandon(NewFile *f)
{
	if (f->fd >= 0)
		close(f->fd);
	if (f->temporary[0])
		unlink(f->temporary);
	f->fd = -1;
	f->temporary[0] = 0;
	if (f->holds_signals)
		sigprocmask(SIG_SETMASK, &f->mask, NULL);
	f->holds_signals = false;
}

static void sync_folder(const char *path)
{
	char folder[4096];
	folder_of(path, folder, sizeof folder);
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		fsync(fd); /* a folder that cannot be synced is no reason to lose the file */
		close(fd);
	}
}

/* The mode of what is replaced, or the one that umask left. */
static bool set_mode(const NewFile *f, const struct stat *old)
{
	struct stat st;
	if (f->is_cache)
		return fstat(f->fd, &st) == 0 && fchmod(f->fd, st.st_mode & 0755) == 0;
	return !old->st_mode || fchmod(f->fd, old->st_mode & 07777) == 0;
}

/* A name that nothing has is taken at once; else it has a name of its own first, and the old file stays until then. */
static bool take_name(NewFile *f)
{
	struct stat old;
	char self[64], name[sizeof f->temporary];
	if (!may_replace(f, &old)) /* what is there now may be another thing than at the beginning */
		return false;
	if (!set_mode(f, &old) || (!f->is_cache && fsync(f->fd) != 0))
		return cannot(f);
	if (!f->temporary[0]) {
		snprintf(self, sizeof self, "/proc/self/fd/%d", f->fd);
		if (!old.st_mode && linkat(AT_FDCWD, self, AT_FDCWD, f->path, AT_SYMLINK_FOLLOW) == 0)
			return true;
		if (!old.st_mode && errno != EEXIST)
			return cannot(f);
		snprintf(name, sizeof name, "%s.tmp.%d", f->path, (int)getpid());
		hold_signals(f);
		unlink(name);
		if (linkat(AT_FDCWD, self, AT_FDCWD, name, AT_SYMLINK_FOLLOW) != 0)
			return cannot(f);
		strcpy(f->temporary, name);
	}
	if (rename(f->temporary, f->path) != 0)
		return cannot(f);
	f->temporary[0] = 0;
	return true;
}

bool new_file_end(NewFile *f)
{
	const bool ok = take_name(f);
	if (ok && !f->is_cache)
		sync_folder(f->path);
	new_file_abandon(f); /* of what was renamed nothing is left to unlink */
	return ok;
}

bool new_file_may_begin(const char *path, char *why, size_t why_bytes)
{
	NewFile f;
	if (!new_file_begin(&f, path, why, why_bytes))
		return false;
	new_file_abandon(&f);
	return true;
}
