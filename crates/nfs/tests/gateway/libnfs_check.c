/* Goes through the operations of libnfs on an empty export and says what went otherwise than it should. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <nfsc/libnfs.h>

static struct nfs_context *nfs;

#define CHECK(what)                                                                              \
    do {                                                                                         \
        if (!(what)) {                                                                           \
            printf("line %d: %s: %s\n", __LINE__, #what, nfs_get_error(nfs));                    \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

static int count_entries(const char *path)
{
    struct nfsdir *directory;
    struct nfsdirent *entry;
    int count = 0;
    CHECK(nfs_opendir(nfs, path, &directory) == 0);
    while ((entry = nfs_readdir(nfs, directory)) != NULL)
        if (strcmp(entry->name, ".") && strcmp(entry->name, ".."))
            count++;
    nfs_closedir(nfs, directory);
    return count;
}

int main(int argc, char **argv)
{
    struct nfs_url *url;
    struct nfsfh *file;
    struct nfs_stat_64 found;
    struct statvfs space;
    struct timeval times[2] = {{1000, 0}, {2000, 0}};
    char buffer[8192], name[64], target[256];
    int i;

    if (argc != 2 || (nfs = nfs_init_context()) == NULL)
        return 2;
    CHECK((url = nfs_parse_url_dir(nfs, argv[1])) != NULL);
    CHECK(nfs_mount(nfs, url->server, url->path) == 0);

    CHECK(nfs_mkdir(nfs, "/d") == 0);
    CHECK(nfs_mkdir(nfs, "/d") == -EEXIST);
    CHECK(nfs_mkdir2(nfs, "/d/private", 0700) == 0);
    CHECK(nfs_stat64(nfs, "/d/private", &found) == 0 && (found.nfs_mode & 0777) == 0700);
    CHECK(S_ISDIR(found.nfs_mode));

    CHECK(nfs_creat(nfs, "/d/f", 0640, &file) == 0);
    CHECK(nfs_write(nfs, file, 11, "hello world") == 11);
    CHECK(nfs_pwrite(nfs, file, 6, 5, "there") == 5);
    CHECK(nfs_fsync(nfs, file) == 0);
    CHECK(nfs_fstat64(nfs, file, &found) == 0 && found.nfs_size == 11);
    CHECK(found.nfs_uid == 1000 && found.nfs_gid == 1000);
    CHECK(nfs_ftruncate(nfs, file, 5) == 0);
    CHECK(nfs_close(nfs, file) == 0);
    CHECK(nfs_open(nfs, "/d/f", O_RDONLY, &file) == 0);
    CHECK(nfs_read(nfs, file, sizeof buffer, buffer) == 5 && !memcmp(buffer, "hello", 5));
    CHECK(nfs_pread(nfs, file, 1, 3, buffer) == 3 && !memcmp(buffer, "ell", 3));
    CHECK(nfs_pread(nfs, file, 100, 3, buffer) == 0);
    CHECK(nfs_close(nfs, file) == 0);
    CHECK(nfs_open(nfs, "/d/none", O_RDONLY, &file) == -ENOENT);

    CHECK(nfs_open(nfs, "/d/f", O_WRONLY | O_APPEND, &file) == 0);
    CHECK(nfs_write(nfs, file, 3, "!!!") == 3);
    CHECK(nfs_close(nfs, file) == 0);
    CHECK(nfs_truncate(nfs, "/d/f", 10) == 0);
    CHECK(nfs_stat64(nfs, "/d/f", &found) == 0 && found.nfs_size == 10);
    CHECK(nfs_chmod(nfs, "/d/f", 0600) == 0);
    CHECK(nfs_utimes(nfs, "/d/f", times) == 0);
    CHECK(nfs_stat64(nfs, "/d/f", &found) == 0 && (found.nfs_mode & 0777) == 0600);
    CHECK(found.nfs_mtime == 2000);
    CHECK(nfs_chown(nfs, "/d/f", 0, 0) == -EPERM);
    CHECK(nfs_access(nfs, "/d/f", R_OK | W_OK) == 0);

    CHECK(nfs_rename(nfs, "/d/f", "/d/private/g") == 0);
    CHECK(nfs_stat64(nfs, "/d/f", &found) == -ENOENT);
    CHECK(nfs_rename(nfs, "/d", "/e") == 0);
    CHECK(nfs_stat64(nfs, "/e/private/g", &found) == 0 && found.nfs_size == 10);
    CHECK(nfs_rename(nfs, "/e", "/e/private/inside") != 0);

    CHECK(nfs_symlink(nfs, "private/g", "/e/link") == 0);
    CHECK(nfs_readlink(nfs, "/e/link", target, sizeof target) == 0 && !strcmp(target, "private/g"));
    CHECK(nfs_lstat64(nfs, "/e/link", &found) == 0 && S_ISLNK(found.nfs_mode));
    CHECK(nfs_open(nfs, "/e/link", O_RDONLY, &file) == 0);
    CHECK(nfs_close(nfs, file) == 0);
    CHECK(nfs_symlink(nfs, "/etc/passwd", "/e/out") == -EACCES);
    CHECK(nfs_link(nfs, "/e/private/g", "/e/second") != 0);
    CHECK(nfs_mknod(nfs, "/e/fifo", S_IFIFO | 0600, 0) != 0);

    CHECK(nfs_statvfs(nfs, "/", &space) == 0 && space.f_blocks > 0 && space.f_bavail <= space.f_blocks);

    CHECK(nfs_mkdir(nfs, "/many") == 0);
    for (i = 0; i < 400; i++) {
        snprintf(name, sizeof name, "/many/a file with a rather long name, number %d", i);
        CHECK(nfs_creat(nfs, name, 0600, &file) == 0);
        CHECK(nfs_close(nfs, file) == 0);
    }
    CHECK(count_entries("/many") == 400);
    for (i = 0; i < 400; i++) {
        snprintf(name, sizeof name, "/many/a file with a rather long name, number %d", i);
        CHECK(nfs_unlink(nfs, name) == 0);
    }
    CHECK(count_entries("/many") == 0);
    CHECK(nfs_rmdir(nfs, "/e") != 0);
    CHECK(nfs_unlink(nfs, "/e/link") == 0);
    CHECK(nfs_unlink(nfs, "/e/private/g") == 0);
    CHECK(nfs_rmdir(nfs, "/e/private") == 0);
    CHECK(nfs_rmdir(nfs, "/e") == 0);
    CHECK(nfs_rmdir(nfs, "/many") == 0);
    CHECK(count_entries("/") == 0);

    nfs_destroy_url(url);
    nfs_destroy_context(nfs);
    puts("all checks passed");
    return 0;
}
