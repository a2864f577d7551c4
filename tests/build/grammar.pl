#!/usr/bin/env perl
# Reads the prototypes of one header and prints a line for each that breaks the grammar.
# usage: gcc -E -P -DQOS_DECLARE_ONLY -DQOS_API=PUBLIC ... | grammar.pl HEADER     (HEADER without .h)
#
# An operation takes its handle, now_ns, ids, amounts and inputs, outputs, in this order. Not operations are:
my %exempt = (
    'arithmetic' => 'no argument is a pointer to a struct, as in qos_mul_div_floor(a, b, c): no handle, no order',
    'init'       => 'X_init(x, mem, size_bytes, [storage, storage_bytes,] config), also X_resume and the like',
    'atomics'    => 'qos_atomic_...(word, ...): as in C11',
    'memsize'    => 'X_memsize(config), X_storage_bytes(config)',
    'error'      => 'X_error(terms): NULL, or a sentence',
    'encode'     => 'X_encode(in, [entries,] buf, size_bytes, len_bytes); qos_frame_seal too',
    'decode'     => 'X_decode(buf, size_bytes, ..., out, [entries, entries_max]); qos_frame_open too',
);
use strict;
use warnings;

# The name of a handle is the last part of its type's name; in a header with one main object, it is this.
my %noun = (htb => 'tree', tags => 'tags', qos_word => 'word', qos_counter => 'counter');
# Objects that an operation takes besides its handle come where ids come.
my %object = map { $_ => 1 } qw(storage word tree tags shared client monitor table maintainer checker placement intake solver scheduler
    agent controller layout bucket writer reader);
# Numbers that are names: ids.
my %id = map { $_ => 1 } qw(id parent server queue bucket object target source client tenant request peer pull stamp hold slot class
    resource epoch generation magic home);
my %banned = (cfg => 'config', conf => 'config', size => 'size_bytes', sz => 'size_bytes', len => 'len_bytes',
    length => 'len_bytes', now => 'now_ns', time => 'now_ns', err => 'status', rc => 'status', ret => 'status',
    buf_size => 'size_bytes', buf_len => 'size_bytes', nbytes => 'len_bytes', parameters => 'config', params => 'config');

my ($header) = @ARGV;
my $text = do { local $/; <STDIN> };
$text =~ s/^#.*$//mg;
$text =~ s/\s+/ /g;
my (%function, $bad);

sub complain { print "$_[0]: $_[1]\n"; $bad++ }

# Words that are banned as names: of an argument, or of a field of a public struct.
sub word {
    my ($where, $name) = @_;
    return complain($where, "write $banned{$name}, not $name") if $banned{$name};
    complain($where, "$name: a size is ..._bytes") if $name =~ /_(size|len|length)$/;
    complain($where, "$name: a time is ..._ns") if $name =~ /_(now|time|timeout|delay)$/;
}

# Arguments: [type, name, pointer, const]
sub arguments {
    my ($list) = @_;
    my ($depth, $item, @items) = (0, '');
    for my $c (split //, $list) {
        $depth++ if $c eq '(';
        $depth-- if $c eq ')';
        if ($c eq ',' && $depth == 0) { push @items, $item; $item = ''; next }
        $item .= $c;
    }
    push @items, $item if $item =~ /\S/ && $item !~ /^\s*void\s*$/;
    return map {
        my $a = $_;
        my $array = $a =~ s/\[[^\]]*\]\s*$//;
        my $callback = $a =~ /\(\s*\*\s*(\w+)\s*\)/ ? $1 : '';
        my ($type, $name) = $callback ? ($a, $callback) : $a =~ /^\s*(.*?)\s*(\w+)\s*$/;
        {type => $type, name => $name, pointer => ($array || $type =~ /\*/) && !$callback,
         const => $type =~ /^\s*const\b/ || $type =~ /\*\s*const\s*\*/ || $callback ne '', struct => $type =~ /\bstruct\s+(\w+)/ ? $1 : ''}
    } @items;
}


while ($text =~ /\bPUBLIC\b((?:[^;{}()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*?)\b(\w+) ?\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\) ?([;{])/g) {
    my ($return, $name, $list) = ($1, $2, $3);
    next unless $name =~ /^\Q$header\E_/ || ($header eq 'qos' && $name =~ /^qos_/) || $name !~ /^(qos|htb|tags|pshift|twochoice|tokenpool)_/;
    my $nodiscard = $return =~ s/__attribute__ ?\(\(warn_unused_result\)\)//;
    $return =~ s/__attribute__ ?\(\([^()]*(\([^()]*\))?[^()]*\)\)//g;
    $return =~ s/^\s+|\s+$//g;
    my @args = arguments($list);
    my @names = map { $_->{name} } @args;
    my $names = join(',', @names);
    $function{$name} = 1;

    complain($name, "the name does not begin with ${header}_") unless $name =~ /^\Q$header\E_/;
    complain($name, "a private name in the API") if $name =~ /_priv_/;
    word($name, $_) for @names;
    complain($name, "returns a struct by value") if $return =~ /^struct \w+$/ && $return ne 'struct qos_u128';
    complain($name, "QOS_NODISCARD is missing: it returns a status")
        if $return eq 'enum qos_status' && !$nodiscard && $name !~ /_(stats|info)$/;
    for my $a (@args) {
        complain($name, "$a->{name}: an id is uint32_t or uint64_t") if $a->{name} eq 'id' && $a->{type} !~ /^uint(32|64)_t$/;
        complain($name, "now_ns is uint64_t") if $a->{name} eq 'now_ns' && $a->{type} ne 'uint64_t';
    }

    # Fixed shapes.
    if ($name =~ /_error$/ && $name ne 'qos_strerror') {
        complain($name, "should be const char *${name}(const struct ... *config)")
            unless $return =~ /^const char ?\*$/ && @args == 1 && $args[0]{const} && $args[0]{struct};
        next;
    }
    if ($name =~ /_(memsize|storage_bytes)$/) {
        complain($name, "should be size_t $name(config)") unless $return eq 'size_t' && $names eq 'config' && $args[0]{const};
        next;
    }
    if ($name =~ /_encode$/ || $name eq 'qos_frame_seal') {
        complain($name, "should be enum qos_status $name(in, [entries,] buf, size_bytes, len_bytes)")
            unless $return eq 'enum qos_status' && $names =~ /^\w+,(\w+,)?buf,size_bytes,len_bytes$/ && $args[0]{const};
        next;
    }
    if ($name =~ /_decode$/ || $name eq 'qos_frame_open') {
        complain($name, "should be enum qos_status $name(buf, size_bytes, ..., out, [entries, entries_max])")
            unless $return eq 'enum qos_status' && $names =~ /^buf,size_bytes,/ && $args[0]{const};
        next;
    }
    next unless @args;
    next if $name =~ /^qos_atomic_/;
    # Arithmetic has no handle.
    next unless grep { $_->{struct} && $_->{pointer} } @args or $args[0]{type} =~ /^(const )?qos_(word|counter)_t ?\*$/;
    if ($name =~ /_stats$/) {
        complain($name, "should be enum qos_status $name(const handle, uint32_t id, struct qos_stats *out)")
            unless $return eq 'enum qos_status' && @args == 3 && $args[0]{const} && $args[1]{type} eq 'uint32_t'
            && $id{$names[1]} && $args[2]{struct} eq 'qos_stats' && $names[2] eq 'out';
    }
    if ($name =~ /_info$/) {
        complain($name, "should be enum qos_status $name(const handle, [id,] struct ... *out)")
            unless $return eq 'enum qos_status' && @args >= 2 && @args <= 3 && $args[0]{const} && $names[-1] eq 'out'
            && $args[-1]{struct} =~ /^\Q$header\E_/;
    }
    if ($name =~ /_next_ns$/) {
        complain($name, "should be uint64_t $name(handle, now_ns, [id, amounts])") unless $return eq 'uint64_t' && @args >= 2 && $names[1] eq 'now_ns';
    }

    # The handle, and its name.
    my $handle = $args[0];
    (my $type = $handle->{type}) =~ s/^const |[\s*]+$|struct |_t(?= ?\*)//g;
    $type = 'storage' if $names[0] eq 'storage';
    if (!$handle->{pointer}) {
        complain($name, "the first argument should be the handle");
        next;
    }
    (my $part = $type) =~ s/^[a-z0-9]+_//;
    my $want = $noun{$type} // $part;
    complain($name, "the handle should be called $want, not $names[0]")
        unless $names[0] eq $want || ($names[0] eq 'config' && $type =~ /config$/) || ($want =~ /_\Q$names[0]\E$/ && length $names[0] > 3);
    complain($name, "does not name its object: $type")
        unless $header eq 'qos' || $name =~ /^\Q$type\E_/ || ($type eq 'storage' && $name =~ /_storage_/) || $header eq $type || $type =~ /_(config|info|word|op|message|solution|problem)$/;

    if ($names =~ /\bmem\b/ || $name =~ /^qos_(writer|reader|layout)_init$/) {
        complain($name, "should be enum qos_status $name(x, mem, size_bytes, [storage, storage_bytes,] config)")
            unless $header eq 'qos' || ($return eq 'enum qos_status' && $names =~ /^\w+,mem,size_bytes,(storage,storage_bytes,)?config$/);
        next;
    }
    # The order. 1 time, 2 ids and other objects, 3 amounts and inputs, 4 outputs; a number right after a pointer that
    # counts its items, or says how many fit, belongs to it.
    my ($class, $last, $last_name) = (0, 0, $names[0]);
    my @called = ('the handle', 'now_ns', 'an id', 'an amount or input', 'an output');
    for my $i (1 .. $#args) {
        my $a = $args[$i];
        if ($a->{name} eq 'now_ns') { $class = 1 }
        elsif ($a->{pointer} && $object{$a->{name}}) { $class = 2 }
        elsif ($a->{pointer}) { $class = $a->{const} ? 3 : 4 }
        elsif ($args[$i - 1]{pointer} && $i > 1 && $a->{name} =~ /^(n|k|count|max)$|_(count|max)$/) { next }
        elsif ($id{$a->{name}}) { $class = 2 }
        else { $class = 3 }
        complain($name, "$a->{name} ($called[$class]) stands after $last_name ($called[$last])") if $class < $last;
        complain($name, "now_ns twice") if $class == 1 && $last == 1;
        ($last, $last_name) = ($class, $a->{name}) if $class >= $last;
    }
}
complain($header, "no prototype was found") unless %function;

# Every configuration has its X_config_error, every struct of terms that it names its own.
while ($text =~ /\bstruct (\w+) \{([^{}]*)\}/g) {
    my ($struct, $fields) = ($1, $2);
    next unless $struct =~ /^\Q$header\E_/ && $struct =~ /_config$/;
    complain("struct $struct", "there is no ${struct}_error") unless $function{"${struct}_error"};
    word("struct $struct", $_) for $fields =~ /(\w+)(?:\[[^\]]*\])?\s*[;,]/g;
}
exit($bad ? 1 : 0);
