"""What a matrix is, wherever it lies.

source            the protocol of a matrix, and that of an array of more axes
grid              the cut of an axis into native chunks
dtypes            what counts as a matrix; another type, without silent loss
view              the matrix as long by short
stacked           an array of more axes as a matrix
selection         rows and columns of a matrix
picks             which ones: slices, masks, lists
missing_columns   without columns that are missing throughout
missing_rows      without such rows
meaning           what stored numbers stand for, by the attributes beside them
decoded           an array of what they stand for
allele_counts     calls of alleles as counts, by sample
alleles           what variants are called, by the allele that is counted
named_objects     what frames, Series and DataArrays call rows and columns
names             what rows and columns are called, and where they are among others
attributes        what is said of numbers: units, names, calendars
longitudes        labels that are degrees of longitude
runs              places as runs, as facts of a result keep them
pandas_index      an index of pandas again, from its names as text
real_parts        a complex matrix as the real one of its parts
places            where an element lies in what a matrix was made of
describe          what a store is, for people
"""
