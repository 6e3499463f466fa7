//! Events of several vbuckets lead to one list.

use super::*;
use crate::testing::{begin, place};

#[test]
fn events_in_any_order_lead_to_the_newest_list() {
    let event = |manifest_uid, change| CollectionEvent { manifest_uid, change };
    let created = event(3, CollectionChange::Created(place(9, "new", "c")));
    let scope = event(2, CollectionChange::ScopeCreated { name: "new".to_owned() });
    let dropped = event(4, CollectionChange::Dropped { id: 9 });
    let old = event(1, CollectionChange::Dropped { id: 1 });
    let mut after = begin("b", None, "");
    // One vbucket tells all of it; another one, which ended earlier, only that it was created.
    let events = [&old, &scope, &created, &dropped, &scope, &created];
    apply(&mut after, events.into_iter().cloned().collect());
    assert_eq!(after.places, begin("b", None, "").places);
    assert_eq!((after.scopes.last().map(String::as_str), after.manifest_uid), (Some("new"), 4));
    let gone = event(5, CollectionChange::ScopeDropped { name: "shop".to_owned() });
    apply(&mut after, vec![gone]);
    assert_eq!(after.places.len(), 1);
}
