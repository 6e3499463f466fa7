export function UsersPage() { return <h1>Users and roles</h1>; }
