//! The list of collections: what is in it, in which order, and what a purge leaves.

use oribi_types::CollectionId;

use super::{CollectionFigures, CollectionStats, ItemFigures};

fn listed(figures: &CollectionFigures) -> Vec<(u32, u64)> {
    let mut out = Vec::new();
    figures.copy_to(&mut out);
    assert_eq!(out.len(), figures.len());
    out.iter()
        .map(|(id, figures): &(CollectionId, CollectionStats)| (id.0, figures.items))
        .collect()
}

fn share(items: u64) -> ItemFigures {
    ItemFigures { items, item_bytes: 48 * items, ..ItemFigures::default() }
}

fn add(figures: &mut CollectionFigures, id: u32) {
    figures.of(CollectionId(id)).exchange(&share(1), &ItemFigures::default());
}

#[test]
fn collections_are_listed_by_id() {
    let mut figures = CollectionFigures::default();
    assert_eq!(figures.ids.capacity() + figures.named.capacity(), 0, "nothing written, no memory");
    for id in [20, 9, 20, 15, 0, 9, 20, 8] {
        add(&mut figures, id);
    }
    assert_eq!(listed(&figures), [(0, 1), (8, 1), (9, 2), (15, 1), (20, 3)]);
    assert!(figures.get_mut(CollectionId(10)).is_none());
    assert_eq!(figures.get_mut(CollectionId(20)).map(|found| found.items), Some(3));
}

#[test]
fn a_purge_moves_other_items_and_keeps_their_counts() {
    let mut figures = CollectionFigures::default();
    for id in [8, 9, 10, 11] {
        add(&mut figures, id);
    }
    figures.of(CollectionId(8)).exchange(&ItemFigures::default(), &share(1));
    figures.retain(|id| id != CollectionId(8));
    for id in [11, 11, 9] {
        add(&mut figures, id);
    }
    assert_eq!(listed(&figures), [(0, 0), (9, 2), (10, 1), (11, 3)]);
}

/// A collection dropped while warmup loads it: the flusher's purge may come between two documents,
/// and what warmup removes afterwards must still find what it had added.
#[test]
fn a_purge_spares_a_collection_that_is_loading() {
    let mut figures = CollectionFigures::default();
    add(&mut figures, 8);
    figures.retain(|id| id != CollectionId(8));
    assert_eq!(listed(&figures), [(0, 0), (8, 1)]);
    figures.of(CollectionId(8)).exchange(&ItemFigures::default(), &share(1));
    figures.retain(|id| id != CollectionId(8));
    assert_eq!(listed(&figures), [(0, 0)]);
}
