"""Operations on a result: transform, update, check, reconstruct.

arguments               arguments of these operations
model                   a stored result as two factors
transform               coordinates of new rows in the components of a result
transform_pass          folds of transform, over dense panels and over stored numbers of a sparse matrix
update                  components of old and new samples; fold that keeps a few rows in memory; summary of
                        samples (number, mean, scatter) that merges with others
check                   residuals of a result against its matrix, dense or by stored numbers if sparse
reconstruct             the matrix from its factors
"""
