"""What a run leaves on disk, and how it is known to be whole.

checksum        crc32c
checkpoint      parts: arrays with what they are and a checksum
ledger          sums of what was written, block by block
manifest        length and checksum of every chunk of a result
scratch         tall narrow matrices between sweeps
chunk_writer    whole chunks of a result
result          Zarr groups with provenance
owner           whose a folder of a run is
lock            who writes an output
run_directory   the folder of a run, its record
temporary       folders of results that nobody keeps
journal         what happened when, and where
"""
