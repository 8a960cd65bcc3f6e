"""What a sweep does with a panel, one file each. Every fold states the memory that it allocates.

column_statistics   sums and squares of columns: the pass that scaling needs first
gram_pass           mean and scatter matrix
panel_pass          Y = A Q to scratch and Z = A'Y: the fused pass
sketch_pass         range, co-range, core and error sketches: the single pass
narrow_gram         their inner products, from scratch
narrow_r            R factor of combinations of Y, from scratch
project_rows        new rows into components, chunk by chunk
project_columns     the same for rows too long to be held
nonnegative_pass    an iteration of a nonnegative factorisation, fused
keep_rows           a matrix of few rows, as it is
rebuild             rows of an approximation out of its factors
block_rows          rows of a block: as stored, ready to multiply, and their norms
nearest             lists of nearest neighbours out of two blocks of rows
write_lists         finished lists into the chunks of the result
ranks               how many rows are nearer than given ones, and where those are
write_rows          combinations of Y into the chunks of the result
"""
