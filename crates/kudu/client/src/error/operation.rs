//! The operations of the client, as an error names them.

use std::fmt;

/// Activity during which an error occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Looking for the master that leads.
    ConnectToMaster,
    /// Creating a table and waiting for its tablets.
    CreateTable,
    /// Opening a table.
    OpenTable,
    /// Altering a table and waiting until every tablet has the change.
    AlterTable,
    /// Deleting a table.
    DeleteTable,
    /// Bringing a softly deleted table back.
    RecallTable,
    /// Listing tables.
    ListTables,
    /// Listing tablet servers.
    ListTabletServers,
    /// Asking for the statistics of a table.
    TableStatistics,
    /// Asking the master where a table's tablets are.
    LocateTablets,
    /// Sending a batch of row operations to one tablet.
    Write,
    /// Opening, continuing or closing a scanner.
    Scan,
    /// Asking a tablet server how to split a key range.
    SplitKeyRange,
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Operation::ConnectToMaster => "connect to master",
            Operation::CreateTable => "create table",
            Operation::OpenTable => "open table",
            Operation::AlterTable => "alter table",
            Operation::DeleteTable => "delete table",
            Operation::RecallTable => "recall table",
            Operation::ListTables => "list tables",
            Operation::ListTabletServers => "list tablet servers",
            Operation::TableStatistics => "table statistics",
            Operation::LocateTablets => "locate tablets",
            Operation::Write => "write",
            Operation::Scan => "scan",
            Operation::SplitKeyRange => "split key range",
        })
    }
}
