//! The conformance suite, unchanged, with the table as the medium.

use oribi_storage::{KvStore, Medium, StoreError, conformance};

use crate::{CLUSTER, Place};

impl Medium for Place {
    fn open(&self) -> Result<Box<dyn KvStore>, StoreError> {
        Ok(Box::new(self.open_owned()?))
    }
}

#[test]
fn the_store_conforms() {
    let Some(cluster) = CLUSTER.get() else { return };
    conformance::run(&|| Box::new(Place::new(cluster)));
}
