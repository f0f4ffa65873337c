/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The options of the verbs. Each row has the option's name, the name of its value (NULL: no value; words with | between
 * them: one of these words), its help text, and the member of the program's struct that receives the value
 * (base/options.h). verbs.c prints help, the manual page and the shells' completions from the rows. Each program makes
 * its parser's table from them: {PL_SYNC_OPTIONS(PL_OPTION) PL_OPTIONS_END}. Options that only Paceline itself passes
 * follow in the program's own table. The options of `paceline demo`, a script, are in verbs.c.
 *
 * Test  tests/unit/entrypoint/test_options_once.py, tests/unit/entrypoint/test_pages.sh
 */
#ifndef PL_ENTRYPOINT_OPTIONS_H
#define PL_ENTRYPOINT_OPTIONS_H

#define PL_ENDPOINT_OPTION(ROW, field)                                                                                 \
    ROW("--endpoint-url", "URL", "another S3 server (also AWS_ENDPOINT_URL_S3)", PL_TO(field))

#define PL_ENCRYPTION_OPTIONS(ROW)                                                                                     \
    ROW("--sse", "WORD", "encryption of written objects: AES256, aws:kms or aws:kms:dsse (the bucket's)",              \
        PL_TO(encryption.algorithm))                                                                                   \
    ROW("--sse-kms-key-id", "ID", "KMS key for --sse: id, alias or ARN (the key that AWS manages)",                    \
        PL_TO(encryption.key_id))                                                                                      \
    ROW("--bucket-key-enabled", NULL, "with --sse aws:kms: use an S3 Bucket Key, which needs fewer calls of KMS",      \
        PL_TO(encryption.bucket_key))

#define PL_BENCH_OPTIONS(ROW)                                                                                          \
    ROW("--min-bytes", "N", "smallest size (4); KiB, MiB and GiB are understood", PL_TO_READER(min_bytes, read_bytes)) \
    ROW("--max-bytes", "N", "largest size (64 MiB)", PL_TO_READER(max_bytes, read_bytes))                              \
    ROW("--factor", "N", "each size is this many times the one before (4)", PL_TO_READER(factor, read_bytes))          \
    ROW("--type", "TYPE", "type of the elements (float32)", PL_TO_READER(dtype, read_type))                            \
    ROW("--buffers", "arena|private|device",                                                                           \
        "where the buffers are (arena); private: on the heap; device: in GPU memory, on a stream: implies --alone, "   \
        "excludes --peer and --bound",                                                                                 \
        PL_TO_VALUE(buffers, BUFFERS_ARENA))                                                                           \
    ROW("--peer", "mpi|mpi-best",                                                                                      \
        "compare with MPI's own operation; mpi-best: with the fastest of whole messages and messages cut into 64 "     \
        "KiB to 4 MiB",                                                                                                \
        PL_TO_VALUE(peer, PEER_MPI))                                                                                   \
    ROW("--alone", NULL, "the operation alone, without rewriting and reading the buffers around it", PL_TO(alone))     \
    ROW("--bound", NULL, "also measure the lower bound: reading and writing each buffer once", PL_TO(bound))           \
    ROW("--wire", "float16|bfloat16", "send float32 between hosts in this type", PL_TO_VALUE(wire, WIRE_FLOAT16))      \
    ROW("--reproducible", NULL, "same bits whatever the layout", PL_TO_VALUE(flags, PL_REPRODUCIBLE))                  \
    ROW("--pairs", "N", "measurements per size, in turns with the peer; the median counts (7)",                        \
        PL_TO_NUMBER(pairs, 1, 999))                                                                                   \
    ROW("--loop-ms", "N", "shortest loop that is timed (8)", PL_TO_NUMBER(loop_ms, 0.001, 1e6))                        \
    ROW("--threads", "N", "N threads of this process as ranks, without mpirun",                                        \
        PL_TO_NUMBER(threads, 1, BENCH_MOST_THREADS))                                                                  \
    ROW("--json", NULL, "one JSON object a size", PL_TO(json))

#define PL_CHECK_OPTIONS(ROW)                                                                                          \
    ROW("--expect", "efa|tcp|any", "what moves data between hosts (any)", PL_TO(transport))                            \
    ROW("--expect-mbit", "N", "least Mbit/s of each link; a link below a third of the fastest is always reported",     \
        PL_TO_NUMBER(mbit, 0, 1e9))                                                                                    \
    ROW("--expect-shm", "N", "least MiB of /dev/shm on each host (64 per rank, at least 128)",                         \
        PL_TO_UNITS(shm_bytes, 1, 1 << 30, 1 << 20))                                                                   \
    ROW("--expect-files", "N", "least limit of open files per process (default: from the number of ranks)",            \
        PL_TO_NUMBER(files, 1, UINT64_C(1) << 40))                                                                     \
    ROW("--json", NULL, "print one JSON object instead of the table", PL_TO(json))

#define PL_FEED_OPTIONS(ROW)                                                                                           \
    ROW("--epochs", "N", "stop after N epochs (default: go on until told to stop)",                                    \
        PL_TO_NUMBER(epochs, 0, UINT32_MAX))                                                                           \
    ROW("--first", "N", "begin with epoch N (0)", PL_TO_NUMBER(first, 0, UINT32_MAX))                                  \
    ROW("--manifest", NULL, "FROM is a ManifestFile", PL_TO(manifest))                                                 \
    ROW("--augmented", "NAMES",                                                                                        \
        "FROM is an AugmentedManifestFile; each of these attributes of each line becomes a RecordIO record",           \
        PL_TO(attributes))                                                                                             \
    ROW("--recordio", NULL, "wrap each object in a RecordIO record",                                                   \
        PL_TO_VALUE(options.wrapper, PL_CHANNEL_WRAPPER_RECORDIO))                                                     \
    ROW("--decompress", NULL, "undo gzip and zstd first", PL_TO_VALUE(options.compression, PL_COMPRESSION_AUTO))       \
    ROW("--shuffle", "SEED", "another order of objects in each epoch", PL_TO_READER(options, read_shuffle))            \
    ROW("--shard", "R/N", "only the objects of host R of N: those with i mod N = R",                                   \
        PL_TO_READER(options.shard, read_shard))                                                                       \
    ROW("--late", NULL, "make an epoch's FIFO only when the one before is over", PL_TO(options.late))                  \
    ROW("--copy", NULL, "copy into the pipe, do not lend pages: for readers that splice", PL_TO(options.copy))         \
    ROW("--timeout", "SECONDS",                                                                                        \
        "give up after this time without a reader that opens the epoch, reads on, or leaves after a failure (never)",  \
        PL_TO_UNITS(options.timeout_ns, 0, 1000000, PL_NS_PER_S))                                                      \
    ROW("--cut", "BYTES", "close each FIFO after this many bytes, to test how a program handles it",                   \
        PL_TO_NUMBER(options.cut_bytes, 0, UINT64_MAX))                                                                \
    PL_ENDPOINT_OPTION(ROW, s3.endpoint_url)                                                                           \
    ROW("--quiet", NULL, "print no line per epoch", PL_TO(quiet))                                                      \
    ROW("--failure", NULL, "also write PATH and the reason of a failure to standard output", PL_TO(failure))

#define PL_HOROVOD_OPTIONS(ROW)                                                                                        \
    ROW("--python", "P", "the Python that has Horovod installed (python3)", PL_TO(python))                             \
    ROW("--check", NULL, "the same as the word check", PL_TO_VALUE(command, CHECK))                                    \
    ROW("--force", NULL, "also replace a compiled Horovod, or a version other than 0.28.1 (an error without --force)", \
        PL_TO_VALUE(compiled, REPLACED))                                                                               \
    ROW("--unless-compiled", NULL, "leave a compiled Horovod as it is, without an error", PL_TO_VALUE(compiled, KEPT))

#define PL_INFO_OPTIONS(ROW)                                                                                           \
    ROW("--json", NULL, "print one JSON object with an object for each section", PL_TO(json))                          \
    ROW("--cflags", NULL, "print only the compiler's options for a program in C that includes runtime/paceline.h",     \
        PL_TO(cflags))                                                                                                 \
    ROW("--libs", NULL, "print only the linker's options for such a program", PL_TO(libs))

#define PL_LOCAL_OPTIONS(ROW)                                                                                          \
    ROW("--job", "FILE", "the body of CreateTrainingJob; - is standard input; the other options edit it",              \
        PL_TO_READER(job, read_job), .is_first = true)                                                                 \
    ROW("--name", "NAME", "TrainingJobName (from the clock)", PL_TO_READER(job, pl_local_job_set_name))                \
    ROW("--hosts", "N", "number of hosts (1)", PL_TO_READER(job, pl_local_job_set_hosts))                              \
    ROW("--processes-per-host", "N", "start the program by mpirun, N times on each host",                              \
        PL_TO_NUMBER(processes, 1, 1024))                                                                              \
    ROW("--channel", "NAME=FROM[:WORD]",                                                                               \
        "a folder or s3:// prefix as a channel; words: pipe, fastfile, sharded, recordio, shuffle=SEED, "              \
        "manifest=FILE, augmented=NAMES",                                                                              \
        PL_TO_READER(job, pl_local_job_add_channel))                                                                   \
    ROW("--hyperparameter", "NAME=VALUE", "a hyperparameter", PL_TO_READER(job, pl_local_job_add))                     \
    ROW("--environment", "NAME=VALUE", "an environment variable of the job", PL_TO_READER(job, pl_local_job_add))      \
    ROW("--metric", "NAME=REGEX", "a metric: the expression's first group is its value in a line of the log",          \
        PL_TO_READER(job, pl_local_job_add))                                                                           \
    ROW("--max-run", "SECONDS", "MaxRuntimeInSeconds: the job's limit", PL_TO_READER(job.max_run_s, read_max_run))     \
    ROW("--stop", "SECONDS", "simulate StopTrainingJob after this time",                                               \
        PL_TO_READER(local.stop_ns, pl_local_simulate_seconds))                                                        \
    ROW("--spot", "SECONDS",                                                                                           \
        "simulate a spot stop after this time: the job starts again with nothing but its checkpoints",                 \
        PL_TO_READER(local.spot_ns, pl_local_simulate_seconds))                                                        \
    ROW("--lose", "HOST@SECONDS", "simulate the loss of a host: algo-2@30s switches algo-2 off after 30 s",            \
        PL_TO_READER(local.lose, pl_local_simulate_read))                                                              \
    ROW("--cut", "HOST@SECONDS,SECONDS", "simulate a cut: algo-2@30s,5s unplugs its network after 30 s for 5 s",       \
        PL_TO_READER(local.cut, pl_local_simulate_read))                                                               \
    ROW("--stop-time", "SECONDS", "from SIGTERM to SIGKILL (120)",                                                     \
        PL_TO_READER(local.stop_time_ns, pl_local_simulate_seconds))                                                   \
    ROW("--image", "IMAGE", "run the hosts as containers of this image", PL_TO(image))                                 \
    ROW("--engine", "PROGRAM", "the container engine (podman, else docker)", PL_TO(local.engine_name))                 \
    ROW("--engine-option", "WORD", "a further word of `ENGINE run`, such as --gpus=all; may be given again",           \
        PL_TO_READER(local, add_engine_option))                                                                        \
    ROW("--kind", "plain|namespaces", "the kind of the hosts (namespaces where this machine allows them)",             \
        PL_TO_VALUE(local.kind, PL_LOCAL_PLAIN))                                                                       \
    ROW("--keep", NULL, "leave the trees of the hosts", PL_TO(local.keep))                                             \
    ROW("--folder", "DIR", "where the job's folder is made (paceline-local)", PL_TO(folder))

#define PL_PLAN_OPTIONS(ROW) ROW("--json", NULL, "print JSON to a terminal too", PL_TO(json))

#define PL_REPORT_OPTIONS(ROW)                                                                                         \
    ROW("--output", "FILE", "where the page is written (DIR/report.html); - is standard output", PL_TO(output))

#define PL_S3_OPTIONS(ROW)                                                                                             \
    ROW("--recursive", NULL, "everything below a prefix or directory", PL_TO(recursive), .letter = 'r')                \
    ROW("--manifest", NULL, "cp: FROM is a ManifestFile; copy the objects that it names into the directory TO",        \
        PL_TO(manifest))                                                                                               \
    ROW("--json", NULL, "ls: print one JSON object for each key or prefix", PL_TO(json))                               \
    ROW("--again", NULL, "also copy files that exist already with the same size and time", PL_TO(again))               \
    ROW("--quiet", NULL, "no progress line", PL_TO(quiet), .letter = 'q')                                              \
    ROW("--endpoint-url", "URL", "another S3 server (also AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL)",                     \
        PL_TO(client_options.endpoint_url))                                                                            \
    ROW("--region", "NAME", "the bucket's region (also AWS_REGION; learnt from the server where it says so)",          \
        PL_TO(client_options.region))                                                                                  \
    ROW("--path-style", NULL, "the bucket is part of the path of a URL",                                               \
        PL_TO_VALUE(client_options.style, PL_S3_STYLE_PATH))                                                           \
    ROW("--virtual-style", NULL, "the bucket is part of the host's name",                                              \
        PL_TO_VALUE(client_options.style, PL_S3_STYLE_VIRTUAL))                                                        \
    ROW("--no-sign-request", NULL, "send no keys, for public data", PL_TO(client_options.credentials.anonymous))       \
    ROW("--metadata", NULL, "take keys from the machine's metadata service as the last resort",                        \
        PL_TO(client_options.credentials.allow_metadata))                                                              \
    ROW("--requester-pays", NULL, "this account pays for the requests", PL_TO(client_options.requester_pays))          \
    ROW("--no-checksums", NULL, "do not send x-amz-checksum-crc32c", PL_TO(no_checksums))                              \
    PL_ENCRYPTION_OPTIONS(ROW)                                                                                         \
    ROW("--connections", "N", "transfers at a time (16)", PL_TO_NUMBER(client_options.connections, 1, 1024))           \
    ROW("--budget", "MIB", "memory for data under way (64)",                                                           \
        PL_TO_UNITS(stream_options.budget_bytes, 1, 1 << 20, 1 << 20))                                                 \
    ROW("--part", "MIB", "size of one range (an eighth of the budget, at most 4), or of an upload's part (16)",        \
        PL_TO_UNITS(stream_options.part_bytes, 1, 1 << 12, 1 << 20))                                                   \
    ROW("--stall", "SECONDS", "a transfer that moves no byte for this time is started again (10)",                     \
        PL_TO_UNITS(client_options.stall_ns, 1, 3600, PL_NS_PER_S))                                                    \
    ROW("--timeout", "SECONDS",                                                                                        \
        "longest wait for the next bytes, over all attempts (300); for the next key of a list ten times as long",      \
        PL_TO_UNITS(timeout_ns, 1, 1000000, PL_NS_PER_S))                                                              \
    ROW("--verbose", NULL, "a line for each request", PL_TO(verbose), .letter = 'v')

#define PL_SERVER_OPTIONS(ROW)                                                                                         \
    ROW("--workers", "N", "workers on this host (1)", PL_TO_NUMBER(count, 1, PL_SERVER_MOST_WORKERS))                  \
    ROW("--min-workers", "N", "the job continues while N of its workers are left (all: a failed worker ends it)",      \
        PL_TO_NUMBER(min_workers, 1, PL_SERVER_MOST_WORKERS))

#define PL_STACKS_OPTIONS(ROW)                                                                                         \
    ROW("--json", NULL, "print one JSON object: host, rank, process, place and report of each program", PL_TO(json))

#define PL_SWEEP_OPTIONS(ROW)                                                                                          \
    ROW("--dry-run", NULL, "print the trials, one JSON object a line, and start nothing", PL_TO(dry_run))

#define PL_SYNC_OPTIONS(ROW)                                                                                           \
    ROW("--finish", "SECONDS", "how long the last uploads may take (60)", PL_TO_NUMBER(finish_s, 0.001, 86400))        \
    PL_ENDPOINT_OPTION(ROW, client_options.endpoint_url)                                                               \
    ROW("--no-checksums", NULL, "for servers that refuse x-amz-checksum-crc32c", PL_TO(upload.no_checksums))           \
    PL_ENCRYPTION_OPTIONS(ROW)

#define PL_TRACE_OPTIONS(ROW)                                                                                          \
    ROW("--summary", NULL, "say which rank the others waited for, and why, instead of the JSON", PL_TO(summary))

#define PL_TRIAL_OPTIONS(ROW)                                                                                          \
    ROW("--gpus", "N", "GPUs that no other trial of this host uses (all)", PL_TO_NUMBER(gpus, 0, DEVICES_MAX))         \
    ROW("--cpus", "N", "number of CPUs that the trial counts (all)", PL_TO_NUMBER(cpus, 1, DEVICES_MAX))               \
    ROW("--processes", "N", "number of the trial's ranks on this host, by MPI, or by torchrun if the job uses it (1)", \
        PL_TO_NUMBER(processes, 1, DEVICES_MAX))                                                                       \
    ROW("--hyperparameter", "NAME=VALUE", "a hyperparameter, instead of the job's or beside them; repeatable",         \
        PL_TO_READER(hyperparameters, add_hyperparameter))                                                             \
    ROW("--number", "N", "number of its folders: a trial of the same number goes on from them (a free one)",           \
        PL_TO_NUMBER(number, 0, NUMBERS - 1))

#endif
