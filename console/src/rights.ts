// What the user may do, from its roles, so that the page offers nothing that the server would refuse.
// The server decides.

import type { Role, User } from "./api";

const READ_ONLY = ["read", "meta-read", "system-xattr-read", "range-scan", "simple-stats"];
const BUNDLES: Record<string, string[]> = {
  "read-only": READ_ONLY,
  "read-write": [...READ_ONLY, "insert", "upsert", "delete", "system-xattr-write"],
  meta: ["meta-read", "meta-write"],
  stats: ["simple-stats", "operator-stats"],
};

export const isAdmin = (user: User) => user.roles.some((role) => role.role === "admin");

const gives = (role: Role, right: string) =>
  (role.privileges ?? role.role).split("+").some((word) => word === right || BUNDLES[word]?.includes(right));

function covers(role: Role, bucket: string, scope?: string, collection?: string): boolean {
  const fits = (of: string | undefined, asked: string | undefined) => of === undefined || of === "*" || of === asked;
  return (
    fits(role.bucket_name, bucket) &&
    fits(role.scope_name, scope) &&
    fits(role.collection_name, collection)
  );
}

/** True when the user has the right in a collection, or in the whole bucket if none is named. */
export function may(user: User, right: string, bucket: string, scope?: string, collection?: string) {
  return isAdmin(user) || user.roles.some((role) => gives(role, right) && covers(role, bucket, scope, collection));
}
