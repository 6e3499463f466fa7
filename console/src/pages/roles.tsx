// The roles of a user as choices: what the role is, and the bucket, scope and collection where it holds.
//
// Owns: the syntax in which the server's REST interface reads roles, `NAME[BUCKET:SCOPE:COLLECTION]`. A
// role that this page does not know stays as it is.

import { get, type Role } from "../api";
import { SelectField, useAsked } from "../ui";
import { buckets, scopes } from "./catalog";

/** Every bucket, scope or collection. */
const ANY = "*";

interface KnownRole {
  role: string;
  desc: string;
  /** Left out by a role that holds for the whole server. */
  bucket_name?: string;
  /** Left out by a role that holds for whole buckets. */
  scope_name?: string;
}

const OWN_ROLES: KnownRole[] = [
  { role: "read-only", desc: "Read documents and statistics.", bucket_name: ANY, scope_name: ANY },
  { role: "read-write", desc: "Read and write documents, read statistics.", bucket_name: ANY, scope_name: ANY },
  { role: "change-streams", desc: "Follow changes of documents.", bucket_name: ANY, scope_name: ANY },
  { role: "stats", desc: "Read and reset statistics.", bucket_name: ANY },
];

const named = (name: string | undefined) => (name === ANY ? undefined : name);

/** A role as the server reads it and people know it. */
export function written({ role, bucket_name, scope_name, collection_name }: Role): string {
  const place = [bucket_name, named(scope_name), named(collection_name)].filter(Boolean).join(":");
  return place ? `${role}[${place}]` : role;
}

const withCurrent = (names: string[], current: string) =>
  names.includes(current) || current === ANY ? names : [current, ...names];

function PlaceFields({ role, isScoped, change }: { role: Role; isScoped: boolean; change: (role: Role) => void }) {
  const { bucket_name: bucket = ANY, scope_name: scope = ANY, collection_name: collection = ANY } = role;
  const all = useAsked(buckets, []);
  const asked = useAsked(
    (signal) => (isScoped && bucket !== ANY ? scopes(bucket, signal) : Promise.resolve([])),
    [isScoped, bucket],
  );
  const inScope = asked.value?.find(({ name }) => name === scope)?.collections ?? [];
  const choice = (label: string, every: string, names: string[], value: string, change: (name: string) => void) => (
    <SelectField
      label={label}
      value={value}
      options={[[ANY, every], ...withCurrent(names, value)]}
      change={change}
      disabled={value === ANY && names.length === 0}
    />
  );
  const names = (list: { name: string }[] | undefined) => list?.map(({ name }) => name) ?? [];
  return (
    <>
      {choice("Bucket", "every bucket", names(all.value), bucket, (name) =>
        change({ role: role.role, bucket_name: name }),
      )}
      {isScoped && choice("Scope", "every scope", names(asked.value), scope, (name) =>
        change({ role: role.role, bucket_name: bucket, scope_name: named(name) }),
      )}
      {isScoped && choice("Collection", "every collection", names(inScope), collection, (name) =>
        change({ role: role.role, bucket_name: bucket, scope_name: scope, collection_name: named(name) }),
      )}
    </>
  );
}

interface RoleFieldsProps {
  role: Role;
  known: KnownRole[];
  change: (role: Role) => void;
  remove?: () => void;
}

function RoleFields({ role, known, change, remove }: RoleFieldsProps) {
  const kind = known.find((one) => one.role === role.role);
  const hasPlace = kind ? kind.bucket_name !== undefined : role.bucket_name !== undefined;
  const isScoped = kind ? kind.scope_name !== undefined : role.scope_name !== undefined;
  const choose = (name: string) => {
    const next = known.find((one) => one.role === name);
    if (!next?.bucket_name) return change({ role: name });
    const place = next.scope_name ? role : { bucket_name: role.bucket_name };
    change({ ...place, role: name, bucket_name: role.bucket_name ?? ANY });
  };
  return (
    <fieldset class="role" aria-label={`Role ${written(role)}`}>
      <div class="tools">
        <SelectField
          label="Role"
          value={role.role}
          options={withCurrent(
            known.map((one) => one.role),
            role.role,
          )}
          change={choose}
        />
        {hasPlace && <PlaceFields role={role} isScoped={isScoped} change={change} />}
        {remove && (
          <button type="button" aria-label={`Remove the role ${written(role)}`} onClick={remove}>
            Remove
          </button>
        )}
      </div>
      {kind && <p class="hint">{kind.desc}</p>}
    </fieldset>
  );
}

/** All roles of a user; there is one at least. */
export function RolesField({ roles, change }: { roles: Role[]; change: (roles: Role[]) => void }) {
  const asked = useAsked((signal) => get<KnownRole[]>("/settings/rbac/roles", {}, signal), []);
  const theirs = (asked.value ?? []).filter(({ role }) => role !== "admin");
  const known = [{ role: "admin", desc: "Everything, on the whole server." }, ...OWN_ROLES, ...theirs];
  return (
    <section aria-label="Roles">
      <h3>Roles</h3>
      {roles.map((role, at) => (
        <RoleFields
          key={at}
          role={role}
          known={known}
          change={(next) => change(roles.map((role, index) => (index === at ? next : role)))}
          remove={roles.length > 1 ? () => change(roles.filter((_, index) => index !== at)) : undefined}
        />
      ))}
      <div>
        <button type="button" onClick={() => change([...roles, FIRST_ROLE])}>
          Add a role
        </button>
      </div>
    </section>
  );
}

/** The choice of a role that is added. */
export const FIRST_ROLE: Role = { role: "read-only", bucket_name: ANY };
