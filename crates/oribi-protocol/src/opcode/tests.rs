//! Tests of the opcode table.
