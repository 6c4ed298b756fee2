"""Documents at rest: rows of JSON Lines or Parquet in, the same rows with their labels out.

source    reads rows a little at a time
classify  classifies them, many at once, in the order they come
journal   keeps what is done, so that a killed run goes on where it stopped
parquet   turns a finished journal into a Parquet file
progress  how far it is
job       the whole of it
"""
