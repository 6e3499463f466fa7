//! Tests of the frame info codec.
