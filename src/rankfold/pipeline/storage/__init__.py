"""Files that a run leaves on disk, and checks that they are whole.

checksum        crc32c
checkpoint      parts: files of named arrays with a header and checksums
ledger          checksums of what was written, block by block
manifest        length and checksum of every file of a result
scratch         tall narrow matrices between sweeps
chunk_writer    whole chunks of a result
result          Zarr groups with provenance
owner           ownership and permissions of folders of a run
lock            lock on an output
run_directory   the folder of a run, its record
temporary       folders of results that are not kept
journal         attempts and events, with times and places
"""
