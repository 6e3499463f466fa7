// Users, their roles and passwords.
//
// Owns: the form of a user; `roles.tsx` has the choice of its roles.

import { useState } from "preact/hooks";
import { ask, endLogin, get, userPath, type Role } from "../api";
import { useApp } from "../app";
import { PasswordDialog } from "../password";
import { Actions, Cell, Row, Table } from "../table";
import {
  Busy,
  Dialog,
  Failure,
  LastKnown,
  RequestForm,
  TextField,
  TypedConfirmation,
  done,
  useAsked,
} from "../ui";
import { FIRST_ROLE, RolesField, written } from "./roles";

interface User {
  id: string;
  name: string;
  roles: Role[];
}

function UserForm({ user, close, saved }: { user?: User; close: () => void; saved: () => void }) {
  const { isDevelopment } = useApp();
  const [id, setId] = useState(user?.id ?? "");
  const [name, setName] = useState(user?.name ?? "");
  const [password, setPassword] = useState("");
  // The first user has to be an administrator.
  const [roles, setRoles] = useState<Role[]>(user?.roles ?? [isDevelopment ? { role: "admin" } : FIRST_ROLE]);
  const submit = async () => {
    const form = { name, roles: roles.map(written).join(","), password: password || undefined };
    await ask("PUT", userPath(id), { form });
    done(`Saved the user ${id}.`);
    saved();
    close();
  };
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
        <RolesField roles={roles} change={setRoles} />
      </RequestForm>
    </Dialog>
  );
}

type Open = { what: "create" } | { what: "change" | "password" | "remove"; user: User } | undefined;

function UserRow({ user, isSelf, open }: { user: User; isSelf: boolean; open: (open: Open) => void }) {
  return (
    <Row name={user.id}>
      <Cell label="Full name">{user.name || "–"}</Cell>
      <Cell label="Roles" kind="tags">
        {user.roles.map((role) => (
          <span class="tag" key={written(role)}>
            {written(role)}
          </span>
        ))}
      </Cell>
      <Actions>
        <button type="button" aria-label={`Change ${user.id}`} onClick={() => open({ what: "change", user })}>
          Change
        </button>
        <button type="button" aria-label={`Password of ${user.id}`} onClick={() => open({ what: "password", user })}>
          Password
        </button>
        {!isSelf && (
          <button
            type="button"
            class="danger"
            aria-label={`Remove ${user.id}`}
            onClick={() => open({ what: "remove", user })}
          >
            Remove
          </button>
        )}
      </Actions>
    </Row>
  );
}

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
        <LastKnown error={asked.error}>
          <Table caption="Users" columns={["User", "Full name", "Roles", "Actions"]} stacks>
            {asked.value.map((user) => (
              <UserRow key={user.id} user={user} isSelf={user.id === self.id} open={setOpen} />
            ))}
          </Table>
        </LastKnown>
      )}
      {open?.what === "create" && <UserForm close={close} saved={isDevelopment ? endLogin : asked.again} />}
      {open?.what === "change" && <UserForm user={open.user} close={close} saved={asked.again} />}
      {open?.what === "password" && (
        <PasswordDialog user={open.user.id} isOwn={open.user.id === self.id} close={close} />
      )}
      {open?.what === "remove" && (
        <TypedConfirmation
          title="Remove the user"
          what={`The user ${open.user.id} can no longer log in, and its connections are closed.`}
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
