# Perl's Cache::Memcached::Fast, which speaks the text protocol: with_perl.pl PORT
use strict;
use warnings;
use Cache::Memcached::Fast;
use Time::HiRes qw(sleep time);

my $cache = Cache::Memcached::Fast->new({
    servers => ["127.0.0.1:$ARGV[0]"], connect_timeout => 30, io_timeout => 60, max_size => 64 << 20, utf8 => 0,
});
my $failed = 0;

sub equal {
    my ($found, $expected) = map { join('|', map { defined $_ ? $_ : 'undef' } @$_) } @_;
    die substr($found, 0, 200) . ' instead of ' . substr($expected, 0, 200) . "\n" if $found ne $expected;
}

sub check {
    my ($name, $body) = @_;
    if (eval { $body->(); 1 }) { print "PASS $name\n" } else { chomp(my $why = $@); print "FAIL $name $why\n"; $failed = 1 }
}

sub gone {
    my ($key) = @_;
    my $deadline = time + 30;
    while (defined $cache->get($key)) {
        die "$key does not expire\n" if time > $deadline;
        sleep 0.05;
    }
}

$| = 1;
check store => sub {
    equal([$cache->set('k', 'v'), $cache->get('k'), $cache->add('k', 'w'), $cache->add('fresh', 'f')], [1, 'v', '', 1]);
    equal([$cache->replace('none', 'w'), $cache->replace('k', 'b'), $cache->append('k', 'c'), $cache->prepend('k', 'a')], ['', 1, 1, 1]);
    equal([$cache->get('k'), scalar($cache->get('none')), $cache->delete('k'), $cache->delete('k')], ['abc', undef, 1, '']);
    # In void context the request says noreply.
    $cache->set('quiet', 'q');
    $cache->delete('fresh');
    equal([$cache->get('quiet'), scalar($cache->get('fresh'))], ['q', undef]);
};
check 'multi-get' => sub {
    my %documents = map { ("key-$_" => $_) } 0 .. 299;
    my $stored = $cache->set_multi(map { [$_, $documents{$_}] } keys %documents);
    equal([scalar(grep { $_ } values %$stored)], [300]);
    my $found = $cache->get_multi(keys %documents, 'none');
    equal([map { "$_=$found->{$_}" } sort keys %$found], [map { "$_=$documents{$_}" } sort keys %documents]);
};
check cas => sub {
    $cache->set('c', '1');
    my ($token, $value) = @{ $cache->gets('c') };
    equal([$value, $cache->cas('c', $token, '2'), $cache->cas('c', $token, '3'), $cache->get('c')], ['1', 1, '', '2']);
};
check counters => sub {
    $cache->set('n', 10);
    equal([$cache->incr('n', 5), $cache->decr('n', 6), 0 + $cache->decr('n', 100), $cache->incr('none', 1)], [15, 9, 0, '']);
};
check expiry => sub {
    $cache->set('soon', 'v', 1);
    # A TTL ends with a second of the clock, possibly at once, so what is touched lives long before.
    $cache->set('touched', 'v', 1000);
    equal([$cache->touch('touched', 1), $cache->touch('none', 1)], [1, '']);
    gone('soon');
    gone('touched');
};
check large => sub {
    my $large = join '', map { chr($_ % 251) } 0 .. 899_999;
    equal([$cache->set('large', $large), $cache->get('large')], [1, $large]);
};
check binary => sub {
    my $binary = join('', map { chr } 0 .. 255) x 8 . "\r\nEND\r\nVALUE x 0 1\r\n";
    equal([$cache->set('binary', $binary), $cache->get('binary'), $cache->set('empty', ''), $cache->get('empty')], [1, $binary, 1, '']);
};
check errors => sub {
    $cache->set('text', 'text');
    equal([scalar($cache->incr('text', 1)), scalar($cache->set('huge', "\0" x (21 << 20))), scalar($cache->get('huge'))], [undef, undef, undef]);
    equal([$cache->set('k' x 250, 'longest'), $cache->get('k' x 250), $cache->get('text')], [1, 'longest', 'text']);
    my ($version) = values %{ $cache->server_versions };
    equal([length($version) > 0 ? 1 : 0], [1]);
};
exit $failed;
