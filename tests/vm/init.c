/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first process of a test VM, statically linked, alone in the initramfs that tests/vm/boot
 * packs.
 *
 * It makes the host's root file system the VM's, without the VM being able to change it: the lower
 * layer of an overlay is the host's / over virtiofs, the upper one is memory. Two directories are
 * mounted through: the run directory (read-write: how output and status come back) and the kernel's
 * modules. Then it hands over to the guest script in the run directory.
 *
 * Kernel command line: headgate.run=DIR headgate.modules=DIR, both paths on the host.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* tests/vm/boot looks for this word on the console when the guest gave no status. */
static void die(const char* what, const char* argument) {
  printf("headgate-vm: %s %s: %s\n", what, argument, strerror(errno));
  fflush(stdout);
  sync();
  reboot(RB_POWER_OFF);
  for (;;) {
    pause();
  }
}

static void make_directory(const char* path) {
  if (mkdir(path, 0755) != 0 && errno != EEXIST) {
    die("mkdir", path);
  }
}

static void mount_or_die(const char* source, const char* target, const char* type,
                         unsigned long flags, const char* data) {
  if (mount(source, target, type, flags, data) != 0) {
    die("mount", target);
  }
}

/* Loads the modules in the order of /modules/list, which is that of their dependencies. */
static void load_modules(void) {
  FILE* list = fopen("/modules/list", "re");
  if (list == NULL) {
    die("open", "/modules/list");
  }
  char path[4096];
  while (fgets(path, sizeof(path), list) != NULL) {
    path[strcspn(path, "\n")] = '\0';
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
      die("open", path);
    }
    if (syscall(SYS_finit_module, fd, "", 0) != 0 && errno != EEXIST) {
      die("load", path);
    }
    close(fd);
  }
  fclose(list);
}

/* The value of `key` (which ends in '=') on the kernel command line. */
static const char* boot_argument(const char* key) {
  static char line[4096];
  FILE* file = fopen("/proc/cmdline", "re");
  if (file == NULL || fgets(line, sizeof(line), file) == NULL) {
    die("read", "/proc/cmdline");
  }
  fclose(file);
  for (char* word = strtok(line, " \n"); word != NULL; word = strtok(NULL, " \n")) {
    if (strncmp(word, key, strlen(key)) == 0) {
      return strdup(word + strlen(key));
    }
  }
  errno = EINVAL;
  die("missing on the kernel command line:", key);
  return NULL;
}

static void bind_through(const char* from, const char* to) {
  char source[4096];
  char target[4096];
  snprintf(source, sizeof(source), "/host%s", from);
  snprintf(target, sizeof(target), "/new%s", to);
  make_directory(target);
  mount_or_die(source, target, NULL, MS_BIND, NULL);
}

int main(void) {
  const char* directories[] = {"/proc", "/sys", "/dev", "/host", "/memory", "/new"};
  for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); ++i) {
    make_directory(directories[i]);
  }
  mount_or_die("proc", "/proc", "proc", 0, NULL);
  mount_or_die("sysfs", "/sys", "sysfs", 0, NULL);
  mount_or_die("devtmpfs", "/dev", "devtmpfs", 0, NULL);
  load_modules();

  const char* run = boot_argument("headgate.run=");
  const char* modules = boot_argument("headgate.modules=");
  mount_or_die("host", "/host", "virtiofs", 0, NULL);
  mount_or_die("memory", "/memory", "tmpfs", 0, "mode=755");
  make_directory("/memory/upper");
  make_directory("/memory/work");
  mount_or_die("root", "/new", "overlay", 0,
               "lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work");
  bind_through(run, run);
  make_directory("/new/lib/modules");
  bind_through(modules, "/lib/modules");
  const char* kept[] = {"/proc", "/sys", "/dev"};
  for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); ++i) {
    char target[64];
    snprintf(target, sizeof(target), "/new%s", kept[i]);
    make_directory(target);
    mount_or_die(kept[i], target, NULL, MS_MOVE, NULL);
  }

  /* The same steps as switch_root(8); the initramfs is small, so it is not emptied first. */
  if (chdir("/new") != 0) {
    die("chdir", "/new");
  }
  mount_or_die(".", "/", NULL, MS_MOVE, NULL);
  if (chroot(".") != 0 || chdir("/") != 0) {
    die("chroot", "/new");
  }
  char guest[4096];
  snprintf(guest, sizeof(guest), "%s/guest", run);
  execl("/bin/bash", "bash", guest, run, (char*)NULL);
  die("exec /bin/bash", guest);
  return 1;
}
