// Buckets, and the scopes and collections of each: create, change, empty, drop.

import { useState } from "preact/hooks";
import { ask, bucketPath } from "../api";
import { link, useApp, type Route } from "../app";
import { bytes, count } from "../format";
import { isAdmin } from "../rights";
import { Actions, Cell, Row, Table } from "../table";
import {
  Busy,
  Dialog,
  Failure,
  LastKnown,
  Meter,
  NoBucket,
  RequestForm,
  SelectField,
  TextField,
  TypedConfirmation,
  done,
  useAsked,
} from "../ui";
import { buckets, type Bucket } from "./catalog";
import { Collections } from "./collections";

const EVICTION: Record<string, [string, string][]> = {
  membase: [
    ["valueOnly", "Values: keys stay in memory"],
    ["fullEviction", "Whole documents: for more keys than memory holds"],
  ],
  ephemeral: [
    ["noEviction", "Nothing: writes are refused at the quota"],
    ["nruEviction", "Delete documents that are not used"],
  ],
};

const COMPRESSION = ["off", "passive", "active"];
const MEMORY_TIERS = ["off", "dense"];
const REPLICAS: [string, string][] = [
  ["0", "None"],
  ["1", "1"],
  ["2", "2"],
  ["3", "3"],
];

interface Draft {
  name: string;
  bucketType: string;
  ramQuotaMB: string;
  numVBuckets: string;
  evictionPolicy: string;
  compressionMode: string;
  memoryTier: string;
  replicaNumber: string;
  flushEnabled: boolean;
}

const FRESH: Draft = {
  name: "",
  bucketType: "membase",
  ramQuotaMB: "256",
  numVBuckets: "64",
  evictionPolicy: "valueOnly",
  compressionMode: "passive",
  memoryTier: "off",
  replicaNumber: "0",
  flushEnabled: false,
};

function FlushChoice({ value, change }: { value: boolean; change: (value: boolean) => void }) {
  return (
    <label class="check">
      <input type="checkbox" checked={value} onChange={(event) => change((event.target as HTMLInputElement).checked)} />
      The bucket may be emptied (flush)
    </label>
  );
}

function Create({ close, created }: { close: () => void; created: () => void }) {
  const [draft, setDraft] = useState(FRESH);
  const set = (part: Partial<Draft>) => setDraft({ ...draft, ...part });
  const submit = async () => {
    const { flushEnabled, ...rest } = draft;
    await ask("POST", "/pools/default/buckets", { form: { ...rest, flushEnabled: flushEnabled ? 1 : 0 } });
    done(`Created the bucket ${draft.name}.`);
    created();
    close();
  };
  return (
    <Dialog title="New bucket" close={close}>
      <RequestForm text="Create" cancel={close} submit={submit}>
        <TextField label="Name" value={draft.name} change={(name) => set({ name })} required autocomplete="off" />
        <SelectField
          label="Storage"
          value={draft.bucketType}
          options={[
            ["membase", "On disk"],
            ["ephemeral", "In memory only"],
          ]}
          change={(bucketType) => set({ bucketType, evictionPolicy: EVICTION[bucketType]![0]![0] })}
        />
        <TextField
          label="Memory quota in MiB"
          type="number"
          min={1}
          value={draft.ramQuotaMB}
          change={(ramQuotaMB) => set({ ramQuotaMB })}
          required
        />
        <SelectField
          label="Eviction"
          hint="What leaves the memory when the quota is used up"
          value={draft.evictionPolicy}
          options={EVICTION[draft.bucketType]!}
          change={(evictionPolicy) => set({ evictionPolicy })}
        />
        <SelectField
          label="Compression"
          value={draft.compressionMode}
          options={COMPRESSION}
          change={(compressionMode) => set({ compressionMode })}
        />
        <SelectField
          label="Memory tier"
          hint="dense: unused values are compressed in memory before they leave it"
          value={draft.memoryTier}
          options={MEMORY_TIERS}
          change={(memoryTier) => set({ memoryTier })}
        />
        <SelectField
          label="Replicas"
          hint="Copies of each document on other nodes of the cluster"
          value={draft.replicaNumber}
          options={REPLICAS}
          change={(replicaNumber) => set({ replicaNumber })}
        />
        <SelectField
          label="vbuckets"
          hint="Cannot be changed later"
          value={draft.numVBuckets}
          options={["64", "128", "256", "512", "1024"]}
          change={(numVBuckets) => set({ numVBuckets })}
        />
        <FlushChoice value={draft.flushEnabled} change={(flushEnabled) => set({ flushEnabled })} />
      </RequestForm>
    </Dialog>
  );
}

function Change({ bucket, close, changed }: { bucket: Bucket; close: () => void; changed: () => void }) {
  const [quota, setQuota] = useState(String(Math.round(bucket.quota.ram / 1024 / 1024)));
  const [compression, setCompression] = useState(bucket.compressionMode);
  const [tier, setTier] = useState(bucket.memoryTier);
  const [flush, setFlush] = useState(bucket.controllers.flush !== undefined);
  const submit = async () => {
    const form = { ramQuotaMB: quota, compressionMode: compression, memoryTier: tier, flushEnabled: flush ? 1 : 0 };
    await ask("POST", bucketPath(bucket.name), { form });
    done(`Changed the bucket ${bucket.name}.`);
    changed();
    close();
  };
  return (
    <Dialog title={`Change ${bucket.name}`} close={close}>
      <RequestForm text="Save" cancel={close} submit={submit}>
        <TextField label="Memory quota in MiB" type="number" min={1} value={quota} change={setQuota} required />
        <SelectField label="Compression" value={compression} options={COMPRESSION} change={setCompression} />
        <SelectField label="Memory tier" value={tier} options={MEMORY_TIERS} change={setTier} />
        <FlushChoice value={flush} change={setFlush} />
      </RequestForm>
    </Dialog>
  );
}

type Open = { what: "create" } | { what: "change" | "drop" | "empty"; bucket: Bucket } | undefined;

function BucketRow({ bucket, admin, open }: { bucket: Bucket; admin: boolean; open: (open: Open) => void }) {
  const { basicStats: stats, quota } = bucket;
  const button = (text: string, what: "change" | "drop" | "empty", danger = false) => (
    <button
      type="button"
      class={danger ? "danger" : ""}
      aria-label={`${text} ${bucket.name}`}
      onClick={() => open({ what, bucket })}
    >
      {text}
    </button>
  );
  return (
    <Row name={<a href={link("buckets", [bucket.name])}>{bucket.name}</a>}>
      <Cell label="Storage">{bucket.bucketType === "ephemeral" ? "memory" : "disk"}</Cell>
      <Cell label="Documents" kind="number">
        {count(stats.itemCount)}
      </Cell>
      <Cell label="Memory">
        <Meter label={`Memory of ${bucket.name}`} value={stats.memUsed} max={quota.ram} />
        <small class="nowrap">
          {bytes(stats.memUsed)} of {bytes(quota.ram)}
        </small>
      </Cell>
      <Cell label="Disk" kind="number">
        {bytes(stats.diskUsed)}
      </Cell>
      <Cell label="State">{bucket.nodes[0]?.status}</Cell>
      <Actions>
        <a class="button" href={link("documents", [bucket.name])} aria-label={`Documents of ${bucket.name}`}>
          Documents
        </a>
        {admin && button("Change", "change")}
        {admin && bucket.controllers.flush && button("Empty", "empty", true)}
        {admin && button("Drop", "drop", true)}
      </Actions>
    </Row>
  );
}

function Dialogs({ open, close, again }: { open: Open; close: () => void; again: () => void }) {
  if (!open) return null;
  if (open.what === "create") return <Create close={close} created={again} />;
  const { bucket, what } = open;
  if (what === "change") return <Change bucket={bucket} close={close} changed={again} />;
  const act = async () => {
    if (what === "drop") await ask("DELETE", bucketPath(bucket.name));
    else await ask("POST", bucketPath(bucket.name, "controller", "doFlush"), { form: {} });
    done(what === "drop" ? `Dropped the bucket ${bucket.name}.` : `Emptied the bucket ${bucket.name}.`);
    again();
  };
  const documents = `${count(bucket.basicStats.itemCount)} documents`;
  return (
    <TypedConfirmation
      title={what === "drop" ? "Drop the bucket" : "Empty the bucket"}
      what={
        what === "drop"
          ? `This deletes the bucket ${bucket.name} with its collections and ${documents}.`
          : `This deletes all ${documents} of the bucket ${bucket.name}.`
      }
      name={bucket.name}
      action={what === "drop" ? "Drop the bucket" : "Empty the bucket"}
      act={act}
      close={close}
    />
  );
}

export function BucketsPage({ route }: { route: Route }) {
  const { user } = useApp();
  const admin = isAdmin(user);
  const [open, setOpen] = useState<Open>();
  const asked = useAsked(buckets, []);
  const [name] = route.parts;
  if (name) return <Collections bucket={name} key={name} />;
  return (
    <>
      <div class="heading">
        <h1>Buckets</h1>
        {admin && (
          <button type="button" class="primary" onClick={() => setOpen({ what: "create" })}>
            New bucket
          </button>
        )}
      </div>
      <Failure error={asked.error} again={asked.again} />
      {!asked.value && asked.isBusy && <Busy />}
      {asked.value && asked.value.length === 0 && <NoBucket />}
      {asked.value && asked.value.length > 0 && (
        <LastKnown error={asked.error}>
          <Table
            caption="Buckets"
            stacks
            columns={["Name", "Storage", ["Documents", "number"], "Memory", ["Disk", "number"], "State", "Actions"]}
          >
            {asked.value.map((bucket) => (
              <BucketRow bucket={bucket} admin={admin} open={setOpen} key={bucket.name} />
            ))}
          </Table>
        </LastKnown>
      )}
      <Dialogs open={open} close={() => setOpen(undefined)} again={asked.again} />
    </>
  );
}
