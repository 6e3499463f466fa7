//! Tests of the read buffer against a plain vector.
