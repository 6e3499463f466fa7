//! What a deleted bucket leaves, and who removes it.

use oribi_storage::{KvStore, SharedStore, StoreError};
use oribi_storage_kudu::KuduStore;

use crate::{CLUSTER, Place};

#[test]
fn a_table_is_removed_by_its_id_and_nothing_else_is() {
    let Some(cluster) = CLUSTER.get() else { return };
    let place = Place::new(cluster);
    let (first, beside) = (place.open().unwrap(), place.open().unwrap());
    let id = first.id().unwrap();
    assert_eq!(beside.id().unwrap(), id, "it is the same for everybody");
    KuduStore::remove_table(&place.url, &id).unwrap();
    assert!(matches!(first.vbucket_states(), Err(StoreError::Foreign(_))));
    let again = place.open_owned().unwrap();
    assert_ne!(again.id().unwrap(), id);
    // Asked again, by whoever it is, it leaves the table that has the name now.
    KuduStore::remove_table(&place.url, &id).unwrap();
    beside.remove().unwrap();
    again.put_local("name", b"value").unwrap();
    assert_eq!(again.get_local("name").unwrap().as_deref(), Some(&b"value"[..]));
}
