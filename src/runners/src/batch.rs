//! `batch.*`: where the batches that are not over stand, and how one is ended
//! (`salt/runners/batch.py` of 3008).
//!
//! The answers come from the state files that the master keeps for stock's own runner, so both say
//! the same. A batch is not ended here: who drives it is told to.
