// The scopes and collections of a bucket.

import { useState } from "preact/hooks";
import { ask, bucketPath } from "../api";
import { link, useApp } from "../app";
import { period } from "../format";
import { isAdmin } from "../rights";
import { Actions, Cell, Row, Table } from "../table";
import { Busy, Dialog, Failure, LastKnown, RequestForm, TextField, TypedConfirmation, done, useAsked } from "../ui";
import { scopes, type Collection, type Scope } from "./catalog";

const ttlText = (seconds: number) => (seconds === 0 ? "as the bucket" : seconds < 0 ? "no limit" : period(seconds));

type Open =
  | { what: "scope" }
  | { what: "collection"; scope: string }
  | { what: "change"; scope: string; collection: Collection }
  | { what: "dropScope"; scope: string }
  | { what: "drop"; scope: string; collection: string }
  | undefined;

function NameForm(props: {
  title: string;
  hasTtl: boolean;
  name?: string;
  ttl?: number;
  submit: (name: string, ttl: string) => Promise<unknown>;
  close: () => void;
}) {
  const [name, setName] = useState(props.name ?? "");
  const [ttl, setTtl] = useState(String(props.ttl ?? 0));
  const submit = async () => {
    await props.submit(name, ttl);
    props.close();
  };
  return (
    <Dialog title={props.title} close={props.close}>
      <RequestForm text={props.name ? "Save" : "Create"} cancel={props.close} submit={submit}>
        {props.name === undefined && (
          <TextField label="Name" value={name} change={setName} required autocomplete="off" />
        )}
        {props.hasTtl && (
          <TextField
            label="Maximum time to live (TTL) in seconds"
            hint="0 for that of the bucket, -1 for no limit"
            type="number"
            min={-1}
            value={ttl}
            change={setTtl}
          />
        )}
      </RequestForm>
    </Dialog>
  );
}

function Dialogs(props: { bucket: string; open: Open; close: () => void; again: () => void }) {
  const { bucket, open, close, again } = props;
  if (!open) return null;
  const run = async (text: string, request: Promise<unknown>) => {
    await request;
    done(text);
    again();
  };
  const at = (...rest: string[]) => bucketPath(bucket, "scopes", ...rest);
  switch (open.what) {
    case "scope":
      return (
        <NameForm
          title="New scope"
          hasTtl={false}
          close={close}
          submit={(name) => run(`Created the scope ${name}.`, ask("POST", at(), { form: { name } }))}
        />
      );
    case "collection":
      return (
        <NameForm
          title={`New collection in ${open.scope}`}
          hasTtl
          close={close}
          submit={(name, maxTTL) =>
            run(
              `Created the collection ${open.scope}.${name}.`,
              ask("POST", at(open.scope, "collections"), { form: { name, maxTTL } }),
            )
          }
        />
      );
    case "change":
      return (
        <NameForm
          title={`Change ${open.scope}.${open.collection.name}`}
          hasTtl
          name={open.collection.name}
          ttl={open.collection.maxTTL}
          close={close}
          submit={(name, maxTTL) =>
            run(
              `Changed the collection ${open.scope}.${name}.`,
              ask("PATCH", at(open.scope, "collections", name), { form: { maxTTL } }),
            )
          }
        />
      );
    case "dropScope":
      return (
        <TypedConfirmation
          title="Drop the scope"
          what={`This deletes the scope ${open.scope} with its collections and their documents.`}
          name={open.scope}
          action="Drop the scope"
          act={() => run(`Dropped the scope ${open.scope}.`, ask("DELETE", at(open.scope)))}
          close={close}
        />
      );
    case "drop":
      return (
        <TypedConfirmation
          title="Drop the collection"
          what={`This deletes the collection ${open.scope}.${open.collection} and its documents.`}
          name={open.collection}
          action="Drop the collection"
          act={() =>
            run(
              `Dropped the collection ${open.scope}.${open.collection}.`,
              ask("DELETE", at(open.scope, "collections", open.collection)),
            )
          }
          close={close}
        />
      );
  }
}

function ScopeSection(props: { bucket: string; scope: Scope; admin: boolean; open: (open: Open) => void }) {
  const { bucket, scope, admin, open } = props;
  return (
    <section>
      <div class="heading">
        <h2>{scope.name}</h2>
        {admin && (
          <button
            type="button"
            aria-label={`New collection in ${scope.name}`}
            onClick={() => open({ what: "collection", scope: scope.name })}
          >
            New collection
          </button>
        )}
        {admin && scope.name !== "_default" && (
          <button
            type="button"
            class="danger"
            aria-label={`Drop scope ${scope.name}`}
            onClick={() => open({ what: "dropScope", scope: scope.name })}
          >
            Drop scope
          </button>
        )}
      </div>
      {scope.collections.length === 0 ? (
        <p class="muted">This scope has no collections.</p>
      ) : (
        <Table caption={`Collections of ${scope.name}`} columns={["Collection", "Id", "Maximum TTL", "Actions"]} stacks>
          {scope.collections.map((collection) => (
            <Row
              key={collection.uid}
              name={<a href={link("documents", [bucket, scope.name, collection.name])}>{collection.name}</a>}
            >
              <Cell label="Id">
                <code>{collection.uid}</code>
              </Cell>
              <Cell label="Maximum TTL">{ttlText(collection.maxTTL)}</Cell>
              <Actions>
                {admin && collection.name !== "_default" && (
                  <>
                    <button
                      type="button"
                      aria-label={`Change ${collection.name}`}
                      onClick={() => open({ what: "change", scope: scope.name, collection })}
                    >
                      Change
                    </button>
                    <button
                      type="button"
                      class="danger"
                      aria-label={`Drop ${collection.name}`}
                      onClick={() => open({ what: "drop", scope: scope.name, collection: collection.name })}
                    >
                      Drop
                    </button>
                  </>
                )}
              </Actions>
            </Row>
          ))}
        </Table>
      )}
    </section>
  );
}

export function Collections({ bucket }: { bucket: string }) {
  const { user } = useApp();
  const admin = isAdmin(user);
  const [open, setOpen] = useState<Open>();
  const asked = useAsked((signal) => scopes(bucket, signal), [bucket]);
  return (
    <>
      <p>
        <a href={link("buckets")}>← All buckets</a>
      </p>
      <div class="heading">
        <h1>Collections of {bucket}</h1>
        {admin && asked.value && (
          <button type="button" class="primary" onClick={() => setOpen({ what: "scope" })}>
            New scope
          </button>
        )}
      </div>
      <Failure error={asked.error} again={asked.again} />
      {!asked.value && asked.isBusy && <Busy />}
      <LastKnown error={asked.error}>
        {asked.value?.map((scope) => (
          <ScopeSection bucket={bucket} scope={scope} admin={admin} open={setOpen} key={scope.uid} />
        ))}
      </LastKnown>
      <Dialogs bucket={bucket} open={open} close={() => setOpen(undefined)} again={asked.again} />
    </>
  );
}
