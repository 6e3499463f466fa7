// Users, their roles and passwords.
//
// Owns: the form of a user. Roles are written as the server's REST interface reads them, one a line:
// `admin`, `read-only[BUCKET]`, `read-write[BUCKET:SCOPE:COLLECTION]`, `data_reader[*]`.

import { useState } from "preact/hooks";
import { ask, get, userPath, type Role } from "../api";
import { useApp } from "../app";
import { PasswordDialog } from "../password";
import {
  Busy,
  Dialog,
  Failure,
  Field,
  RequestForm,
  SelectField,
  Table,
  TextField,
  TypedConfirmation,
  done,
  useAsked,
} from "../ui";
import { buckets } from "./catalog";

interface User {
  id: string;
  name: string;
  roles: Role[];
}

interface Known {
  role: string;
  name: string;
  desc: string;
  bucket_name?: string;
}

const OWN_ROLES: [string, string][] = [
  ["read-only", "read-only: read documents and statistics"],
  ["read-write", "read-write: the same, and write documents"],
  ["change-streams", "change-streams: follow changes"],
  ["stats", "stats: statistics"],
];

const written = ({ role, bucket_name, scope_name, collection_name }: Role) => {
  const place = [bucket_name, scope_name, collection_name].filter(Boolean).join(":");
  return place ? `${role}[${place}]` : role;
};

/** Adds a role to the list without typing it. */
function RoleChoice({ add }: { add: (role: string) => void }) {
  const known = useAsked((signal) => get<Known[]>("/settings/rbac/roles", {}, signal), []);
  const all = useAsked(buckets, []);
  const [role, setRole] = useState("read-only");
  const [bucket, setBucket] = useState("*");
  const theirs = (known.value ?? []).filter((one) => !OWN_ROLES.some(([name]) => name === one.role));
  const options: [string, string][] = [...OWN_ROLES, ...theirs.map((one): [string, string] => [one.role, `${one.role}: ${one.desc}`])];
  const isWhole = role === "admin";
  return (
    <fieldset class="tools">
      <legend>Add a role</legend>
      <SelectField label="Role" value={role} options={options} change={setRole} />
      <SelectField
        label="Bucket"
        value={bucket}
        disabled={isWhole}
        options={[["*", "every bucket"], ...(all.value ?? []).map(({ name }) => name)]}
        change={setBucket}
      />
      <button type="button" onClick={() => add(isWhole ? role : `${role}[${bucket}]`)}>
        Add
      </button>
    </fieldset>
  );
}

function UserForm({ user, close, saved }: { user?: User; close: () => void; saved: () => void }) {
  const [id, setId] = useState(user?.id ?? "");
  const [name, setName] = useState(user?.name ?? "");
  const [password, setPassword] = useState("");
  const [roles, setRoles] = useState(user?.roles.map(written).join("\n") ?? "");
  const submit = async () => {
    const list = roles.split(/[\n,]/).map((role) => role.trim());
    const form = { name, roles: list.filter(Boolean).join(","), password: password || undefined };
    await ask("PUT", userPath(id), { form });
    done(`Saved the user ${id}.`);
    saved();
    close();
  };
  const add = (role: string) => setRoles([...roles.split("\n").filter(Boolean), role].join("\n"));
  return (
    <Dialog title={user ? `Change ${user.id}` : "New user"} close={close} wide>
      <RequestForm text="Save" cancel={close} submit={submit}>
        {!user && <TextField label="User name" value={id} change={setId} required autocomplete="off" />}
        <TextField label="Full name" value={name} change={setName} autocomplete="off" />
        {!user && (
          <TextField
            label="Password"
            type="password"
            autocomplete="new-password"
            value={password}
            change={setPassword}
            required
          />
        )}
        <Field label="Roles, one a line" hint="NAME, NAME[BUCKET] or NAME[BUCKET:SCOPE:COLLECTION]">
          {(id, hintId) => (
            <textarea
              id={id}
              aria-describedby={hintId}
              class="editor"
              rows={4}
              spellcheck={false}
              value={roles}
              onInput={(event) => setRoles((event.target as HTMLTextAreaElement).value)}
            />
          )}
        </Field>
        <RoleChoice add={add} />
      </RequestForm>
    </Dialog>
  );
}

type Open = { what: "create" } | { what: "change" | "password" | "remove"; user: User } | undefined;

export function UsersPage() {
  const { user: self, isDevelopment } = useApp();
  const [open, setOpen] = useState<Open>();
  const asked = useAsked((signal) => get<User[]>("/settings/rbac/users", {}, signal), []);
  const close = () => setOpen(undefined);
  return (
    <>
      <div class="heading">
        <h1>Users and roles</h1>
        <button type="button" class="primary" onClick={() => setOpen({ what: "create" })}>
          New user
        </button>
      </div>
      {isDevelopment && (
        <p class="notice">
          The server is in development mode. The first user ends it, and <code>Administrator</code> with it: give the
          first user the role <code>admin</code>.
        </p>
      )}
      <Failure error={asked.error} again={asked.again} />
      {!asked.value && asked.isBusy && <Busy />}
      {asked.value?.length === 0 && <p class="muted">There are no users yet.</p>}
      {asked.value && asked.value.length > 0 && (
        <Table caption="Users" columns={["User", "Full name", "Roles", "Actions"]}>
          {asked.value.map((user) => (
            <tr key={user.id}>
              <th scope="row">{user.id}</th>
              <td>{user.name}</td>
              <td>
                {user.roles.map((role) => (
                  <span class="tag" key={written(role)}>
                    {written(role)}
                  </span>
                ))}
              </td>
              <td class="actions">
                <button
                  type="button"
                  aria-label={`Change ${user.id}`}
                  onClick={() => setOpen({ what: "change", user })}
                >
                  Change
                </button>
                <button
                  type="button"
                  aria-label={`Password of ${user.id}`}
                  onClick={() => setOpen({ what: "password", user })}
                >
                  Password
                </button>
                {user.id !== self.id && (
                  <button
                    type="button"
                    class="danger"
                    aria-label={`Remove ${user.id}`}
                    onClick={() => setOpen({ what: "remove", user })}
                  >
                    Remove
                  </button>
                )}
              </td>
            </tr>
          ))}
        </Table>
      )}
      {open?.what === "create" && <UserForm close={close} saved={asked.again} />}
      {open?.what === "change" && <UserForm user={open.user} close={close} saved={asked.again} />}
      {open?.what === "password" && (
        <PasswordDialog user={open.user.id} isOwn={open.user.id === self.id} close={close} />
      )}
      {open?.what === "remove" && (
        <TypedConfirmation
          title={`Remove ${open.user.id}`}
          what={`The user ${open.user.id} can log in no longer, and its connections end.`}
          name={open.user.id}
          action="Remove the user"
          act={async () => {
            await ask("DELETE", userPath(open.user.id));
            done(`Removed the user ${open.user.id}.`);
            asked.again();
          }}
          close={close}
        />
      )}
    </>
  );
}
