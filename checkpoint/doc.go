// Package checkpoint saves and loads state: safetensors files of our own
// reading and writing, and the contract by which the ranks of a job save a step
// together so that a crash at any instant leaves the last good checkpoint
// loadable.
//
// A checkpoint is a folder that Hugging Face tools read as it is:
//
//	step-00000100/
//	  config.json                       as given
//	  model.safetensors                 or model-00001-of-00004.safetensors … with model.safetensors.index.json
//	  optimizer.safetensors             or a shard each
//	  manifest.json                     step, seed, data position, size and SHA-256 of every other file, and of itself
//
// It is written as step-00000100.tmp/: each rank writes and syncs its files and
// reports size and checksum; rank 0 writes and syncs the manifest, syncs the
// folder, renames it and syncs the parent; only then are old ones pruned. A
// folder with the final name is therefore whole unless the disk damaged it
// later, which Open finds by the checksums before any weight is used.
//
// SHA-256 rather than a CRC: the digest in the manifest then also says that two
// runs ended with the same bits, and sha256sum checks a checkpoint without us.
// It is computed beside the write, on another core; BenchmarkSave, BenchmarkWrite
// and BenchmarkSHA256 show its cost on a given machine.
package checkpoint
