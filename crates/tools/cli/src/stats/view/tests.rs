//! Groups as servers send them, and how they look.

use super::*;

fn view(stats: &[(&str, &str)]) -> StatsView {
    let mut view = StatsView::default();
    for (name, value) in stats {
        view.add(&Stat { name: name.as_bytes(), value: value.as_bytes() });
    }
    view
}

#[test]
fn names_tell_whose_figure_it_is() {
    for (name, owner, figure) in [
        ("curr_items", Owner::Whole, "curr_items"),
        ("vb_12", Owner::Entity("vb_12"), "state"),
        ("vb_active_num", Owner::Whole, "vb_active_num"),
        ("vb_12:high_seqno", Owner::Entity("vb_12"), "high_seqno"),
        ("vb_12:persistence:num_visits", Owner::Part("vb_12", "persistence"), "num_visits"),
        ("vb_1:manifest:uid", Owner::Entity("vb_1"), "manifest:uid"),
        ("vb_1:0x0:name:", Owner::Part("vb_1", "0x0"), "name"),
        ("0x0:0x8:items", Owner::Part("0x0", "0x8"), "items"),
        ("vb_1:0x0:0x8:items", Owner::Part("vb_1", "0x0:0x8"), "items"),
        ("ep_tasks:cur_time:default", Owner::Whole, "ep_tasks:cur_time:default"),
        (":", Owner::Whole, ""),
        ("", Owner::Whole, ""),
    ] {
        assert_eq!(owner_of(name), (owner, figure), "{name}");
    }
}

#[test]
fn general_figures_are_a_list() {
    let view = view(&[
        ("version", "1.6.0"),
        ("curr_items", "1234567"),
        ("mem_used", "27133696"),
        ("ep_degraded_mode", "false"),
    ]);
    assert_eq!(
        view.draw(80),
        "version           1.6.0\n\
         curr_items         1,234,567\n\
         mem_used          27,133,696  (25.88 MiB)\n\
         ep_degraded_mode  false\n"
    );
}

const SEQNOS: &[(&str, &str)] = &[
    ("vb_0:high_seqno", "1500"),
    ("vb_0:uuid", "77"),
    ("vb_1:high_seqno", "8"),
    ("vb_1:uuid", "1234567"),
    ("vb_1:extra", "x"),
];

#[test]
fn vbuckets_are_rows_where_they_fit() {
    assert_eq!(
        view(SEQNOS).draw(60),
        "id    high_seqno  uuid     extra\n\
         vb_0       1,500  77\n\
         vb_1           8  1234567  x\n"
    );
    assert_eq!(
        view(SEQNOS).draw(24),
        "vb_0\n  high_seqno 1,500\n  uuid          77\n\n\
         vb_1\n  high_seqno       8\n  uuid       1234567\n  extra            x\n"
    );
}

#[test]
fn cursors_and_checkpoints_stand_under_their_vbucket() {
    let view = view(&[
        ("vb_3:open_checkpoint_id", "9"),
        ("vb_3:num_checkpoint_items", "12"),
        ("vb_3:persistence:cursor_seqno", "40"),
        ("vb_3:persistence:num_visits", "7"),
        ("vb_3:id_8:state", "CLOSED"),
        ("vb_3:id_9:state", "OPEN"),
    ]);
    assert_eq!(
        view.draw(80),
        "vb_3\n\
         \x20 open_checkpoint_id    9  num_checkpoint_items 12\n\
         \x20 id           cursor_seqno  num_visits\n\
         \x20 persistence            40           7\n\
         \x20 id    state\n\
         \x20 id_8  CLOSED\n\
         \x20 id_9  OPEN\n"
    );
}

#[test]
fn the_second_value_of_a_name_replaces_the_first() {
    let view = view(&[
        ("manifest_uid", "5"),
        ("0x0:0x8:name", "a"),
        ("0x0:0x8:items", "3"),
        ("0x0:0x8:name", "a"),
    ]);
    assert_eq!(view.draw(80), "manifest_uid  5\n\n0x0\n  id   name  items\n  0x8  a         3\n");
}

#[test]
fn documents_become_tables_and_bars() {
    let view = view(&[
        (
            "ep_tasks:tasks:default",
            r#"[{"name":"flusher","num_runs":7},{"name":"warmup","num_runs":1}]"#,
        ),
        ("31", r#"{"peername":"127.0.0.1:4","agent":"x\u001b[m"}"#),
        ("get_cmd", r#"{"bucketsLow":0,"data":[[2,4,100.0]],"total":4}"#),
        ("odd", "[1,2]"),
    ]);
    assert_eq!(
        view.draw(80),
        "odd  [1,2]\n\n\
         id  agent    peername\n31  x\\x1b[m  127.0.0.1:4\n\n\
         ep_tasks:tasks:default\nname     num_runs\nflusher         7\nwarmup          1\n\n\
         get_cmd: 4 values  p50 2 µs  p90 2 µs  p99 2 µs  p99.9 2 µs  max 2 µs\n\
         \x20 1 - 2  4 100.00%  ████████████████████████████████████████████████\n"
    );
}

#[test]
fn memory_is_bounded() {
    let mut view = StatsView::default();
    for number in 0..FIGURES_MAX + 5 {
        view.add(&Stat { name: format!("n{number}").as_bytes(), value: b"1" });
    }
    assert_eq!(view.left_out(), 5);
    assert_eq!(view.draw(80).lines().count(), FIGURES_MAX);
}

/// No name or value makes drawing panic, whatever the width.
#[test]
fn any_name_can_be_drawn() {
    for name in [":", "::", ":a", "a:", "a::b", "vb_:", "vb_99999", "0x0::", "", "ep_:x", "é:ü:ö"]
    {
        for value in ["", "1", "{}", "[]", "[{}]", "{\"a\":{}}", "\u{1b}"] {
            for width in [0, 1, 10, 200] {
                view(&[(name, value), ("vb_0:x:y", "1"), (name, value)]).draw(width);
            }
        }
    }
}
