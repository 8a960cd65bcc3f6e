"""Files that a run leaves on disk, and checks that they are whole.

checkpoint      parts: files of named arrays with a header and checksums; CRC-32C of arrays and bytes;
                checksums of what was written, block by block
manifest        length and checksum of every file of a result
scratch         intermediate files: tall narrow matrices that one sweep writes and later ones read
chunk_writer    writes whole chunks of arrays of a result
result          results: Zarr groups with the facts that are needed to check and repeat them
lock            lock on an output
run_directory   the folder of a run: its checkpoints, scratch, growing result and record; ownership and
                permissions of folders of a run
temporary       folders of results that are not kept
journal         attempts at a result, and events of a run, with times and processes
"""
