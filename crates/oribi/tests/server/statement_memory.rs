//! The memory of SQL statements: within the process's bound, and returned to the system when a
//! statement ends.

use crate::fixture::Fixture;

const MIB: u64 = 1 << 20;
const QUOTA_MIB: u64 = 64;
const RESIDENT_BYTES_MAX: u64 = (QUOTA_MIB + QUOTA_MIB / 10 + 64) * MIB;
/// What may stay with the allocator after a statement.
const IDLE_BYTES_MAX: u64 = 12 * MIB;
/// More than glibc's heaps: each would keep the memory of one statement.
const STATEMENTS: usize = 6;

#[test]
fn refused_statements_return_their_memory() {
    let fixture = Fixture::start_with(|options| options.setting("memory-quota-mib", QUOTA_MIB));
    let admin = fixture.admin();
    let resident = || fixture.server.resident_bytes().unwrap();
    let sort = "with recursive c(n) as (select 1 union all select n + 1 from c limit 4000000) \
                select n from c order by n desc";
    let body = serde_json::json!({ "statement": sort }).to_string();
    let before = resident();
    for number in 0..STATEMENTS {
        let answer = std::thread::scope(|scope| {
            let query = scope
                .spawn(|| admin.request("POST", "/query/sql", "application/json", body.as_bytes()));
            while !query.is_finished() {
                assert!(resident() <= RESIDENT_BYTES_MAX, "{} MiB", resident() / MIB);
                std::thread::yield_now();
            }
            query.join().unwrap().unwrap()
        });
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert!(answer.text().contains("needs more memory"), "{}", answer.text());
        let after = resident();
        let grown = after.saturating_sub(before);
        assert!(grown <= IDLE_BYTES_MAX, "{} MiB stay after {number}", grown / MIB);
    }
    fixture.finish(&[]);
}
