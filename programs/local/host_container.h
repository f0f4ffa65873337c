/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Hosts as containers of podman or docker, by the engine's own command line. Each host is a client `ENGINE run` in the
 * foreground, which passes SIGTERM on and ends with the container's exit code. Containers and the network carry a label
 * with the process number of their `paceline local`; the next call removes what a killed one left.
 *
 * Test  tests/integration/containers.sh
 */
#ifndef PL_PROGRAMS_LOCAL_HOST_CONTAINER_H
#define PL_PROGRAMS_LOCAL_HOST_CONTAINER_H

#include "programs/local/local.h"

/**
 * Finds the engine and the image, removes what killed calls left, and makes the network of several hosts.
 *
 * Errors  PL_NOT_FOUND: no engine, or no such image. PL_FAILED: the engine refuses, with its words.
 */
enum pl_status pl_local_containers_prepare(struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Makes the command line of the host `index`, which runs `argv` (its first word only if the job has an entry point of
 * its own) with the variables that `environment` has beside those of this machine. Free it by
 * pl_local_container_words_free().
 */
enum pl_status pl_local_container_words(const struct pl_local *local, size_t index, const char *const *argv,
                                        const struct pl_environment *environment, char ***ret_words,
                                        struct pl_error *reterr) PL_MUST_CHECK;
void pl_local_container_words_free(char ***words_at);

#define PL_AUTO_CONTAINER_WORDS __attribute__((cleanup(pl_local_container_words_free)))

/** The container of the host `index`. */
void pl_local_container_name(size_t index, char text[static 64]);

/** Kills the container of the host `index`; does not wait for that. */
void pl_local_container_kill(const struct pl_local *local, size_t index);

/** Takes the container of the host `index` off the network, so that its end closes no connection, and kills it. */
enum pl_status pl_local_container_lose(struct pl_local *local, size_t index, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Gives the files that a daemon of root has made in the job's folder to the caller, by a container of the same image:
 * nobody but root could remove them otherwise.
 */
enum pl_status pl_local_containers_give_back(struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/** Removes the containers and the network. Called when no client runs any more. */
void pl_local_containers_remove(struct pl_local *local);

#endif
